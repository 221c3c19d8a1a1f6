package podcert_test

import (
	"slices"
	"testing"
	"time"
)

func TestPodGetsTheCertificateThatThePolicyGrants(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.create(honest())
		c.want(issuedState)
		r := c.get("req-1")
		if names := issuedTo(t, r); !slices.Equal(names, []string{"spiffe://example.org/ns/shop/sa/web"}) {
			t.Errorf("issued to %q", names)
		}
		life := r.Status.NotAfter.Sub(r.Status.NotBefore.Time)
		if part := float64(r.Status.BeginRefreshAt.Sub(r.Status.NotBefore.Time)) / float64(life); life != 24*time.Hour || part < 0.39 || part > 0.61 {
			t.Errorf("it lives for %s and is refreshed at %.2f of that", life, part)
		}
		lines := c.audit.Lines(c.t, "issued")
		if len(lines) != 1 || lines[0]["object"] != "request-uid" {
			t.Errorf("audit: %v", lines)
		}
		if c.happened("issued") != 1 || c.tally(&c.writes) != 1 || c.happened("undelivered") != 0 {
			t.Errorf("%v, %d writes", c.events, c.tally(&c.writes))
		}
	})
}
