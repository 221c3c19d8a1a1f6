package kubeca

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeftoversAreDeletedOnceAnHour(t *testing.T) {
	c := newCluster(t)
	put := func(name, manager string, age time.Duration, decided bool) {
		o := c.issuing().order(signRequest(t, name))
		o.Metadata.Name, o.Metadata.UID, o.Metadata.Created = name, name, time.Now().Add(-age)
		o.Metadata.Labels[managedBy] = manager
		if decided {
			c.sign(&o)
		}
		c.set(func() { c.put(issuers+"/"+name, o, "ADDED") })
	}
	for i := range 7 {
		put(fmt.Sprintf("old-%d", i), managerName, 2*time.Hour, true)
	}
	put("left", managerName, 25*time.Hour, false)
	kept := map[string]bool{"others": true, "open": true, "fresh": true, "new": true}
	put("others", "helm", 48*time.Hour, true)
	put("open", managerName, 23*time.Hour, false)
	put("fresh", managerName, 30*time.Minute, true)
	with := open(t, c.issuing())
	sign(t, c, with)
	for _, o := range c.left() {
		if !kept[o.Metadata.Name] {
			t.Errorf("%s is left", o.Metadata.Name)
		}
	}
	if len(c.left()) != 3 {
		t.Errorf("%d are left", len(c.left()))
	}
	put("new", managerName, 48*time.Hour, true)
	sign(t, c, with)
	if len(c.left()) != 4 {
		t.Error("it swept again")
	}
	with.sweeps.next = time.Now()
	sign(t, c, with)
	if len(c.left()) != 3 {
		t.Error("it did not sweep again after an hour")
	}
}

// A right that is missing, and a server that lists without end, fail no certificate.
func TestFailedSweepFailsNoCertificate(t *testing.T) {
	c := newCluster(t)
	c.answers(http.MethodGet, http.StatusForbidden, "", `{"message":"no"}`)
	sign(t, c, open(t, c.issuing()))
}

// hangs is an API server that answers nothing.
type hangs struct{ asked int }

func (h *hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked++
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// The wait for a certificate leaves a fifth of a call.
func TestCertificateArrivesInTimeWhateverIsLeftBehind(t *testing.T) {
	settings := newCluster(t).issuing()
	for _, left := range []time.Duration{time.Minute, 6 * time.Second, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, server := open(t, settings), &hangs{}
			client, err := access{url: settings.URL}.client(server)
			must(t, err)
			s := &session{access: access{url: settings.URL}, Client: client}
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			c.remove(ctx, s, issuers, object{})
			c.sweep(ctx, s)
			if deadline, _ := ctx.Deadline(); time.Until(deadline) < left/4 || server.asked != 2 {
				t.Errorf("of %s, %s are left after %d calls", left, time.Until(deadline), server.asked)
			}
		})
	}
}
