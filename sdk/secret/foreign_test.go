package secret_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// withUseless sends, with its own roots, one that Go cannot read.
type withUseless struct{ ca *catest.CA }

const useless = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

func (w withUseless) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	reply, err := w.ca.CSRSign(ctx, req)
	reply.Roots = append([]byte(useless), reply.Roots...)
	reply.Chain = append(reply.Chain, useless...)
	return reply, err
}

func TestUselessRootIsLeftOutAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{Intermediates: 1})
		e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Client = withUseless{authority} })
		e.held("default")
		after(2 * time.Hour) // some rotations
		if got := e.held("ROOTCA").Roots; string(got) != string(authority.Bundle().PEM()) {
			t.Errorf("got %s", got)
		}
		if n := len(authority.Requests()); n < 2 {
			t.Fatalf("%d requests", n)
		}
		for _, line := range []string{"roots left out", "PEM block 1 is malformed", "certificates of the reply left out"} {
			if n := strings.Count(e.logged(), line); n != 1 {
				t.Errorf("%q was logged %d times, want once\n%s", line, n, e.logged())
			}
		}
	})
}

func TestWildcardOverNameOfAnotherSecretIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ leaf, other string }{
		"a wildcard over it":    {"*.example.org", "db.example.org"},
		"below its wildcard":    {"db.example.org", "*.example.org"},
		"with a dot at its end": {"db.example.org.", "db.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					c.Authorities[0].Names = new(pki.AnyName)
					c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: func(d *catest.Draft) {
						if len(d.Leaf.URIs) > 0 { // "default"
							d.Leaf.DNSNames = []string{test.leaf}
						}
					}})
					other := c.Secrets[0]
					other.Name, other.Identity = "other", mustDNS(t, test.other)
					c.Secrets = append(slices.Clone(c.Secrets), other)
				})
				e.held("other")
				e.notReady("default")
				if e.count(secret.Failed, "names") != 1 {
					t.Errorf("events %v\n%s", e.events, e.logged())
				}
			})
		})
	}
}

func mustDNS(t *testing.T, name string) pki.Identity {
	t.Helper()
	id, err := pki.NewIdentity("", []string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
