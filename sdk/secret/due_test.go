package secret_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// wantDue checks what Due returns for an authority.
func (e *engine) wantDue(what, authority string, ends time.Time, due bool) {
	e.t.Helper()
	synctest.Wait()
	if gotEnds, gotDue := e.Due(authority); !gotEnds.Equal(ends) || gotDue != due {
		e.t.Errorf("%s: Due(%q) = %s, %t; want %s, %t", what, authority, gotEnds, gotDue, ends, due)
	}
}

func TestDueIsEarliestEndOfWhatAuthorityIsToSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			later := c.Secrets[0]
			later.Name, later.Identity, later.TTL = "later", identity(t, "spiffe://example.org/later"), ttl+20*time.Minute
			c.Secrets = append(c.Secrets, later)
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Hang: true})
			c.Authorities = append(c.Authorities, secret.Authority{Name: "idle", Client: catest.NewCA(catest.Options{Now: time.Now})})
		})
		e.wantDue("at the start", "test", time.Time{}, true)
		e.wantDue("of an authority without key pairs", "idle", time.Time{}, false)
		e.wantDue("of an unknown authority", "unknown", time.Time{}, false)
		e.ca.Always(catest.Fault{})
		after(2 * time.Minute)
		first, last := e.held("default"), e.held("later")
		e.wantDue("all held", "test", time.Time{}, false)
		e.ca.Always(catest.Fault{Err: ca.ErrUnavailable})
		after(time.Until(last.RenewAt) + time.Second)
		e.wantDue("renewals fail", "test", first.NotAfter, true)
		after(time.Until(first.NotAfter) + time.Second)
		e.wantDue("the first has expired", "test", last.NotAfter, true)
		after(time.Until(last.NotAfter) + time.Second)
		e.wantDue("both have expired", "test", time.Time{}, true)
		e.ca.Always(catest.Fault{})
		after(2 * time.Minute)
		e.wantDue("renewed", "test", time.Time{}, false)
	})
}

// asksDue asks for each request what is due.
type asksDue struct {
	*catest.CA
	engine atomic.Pointer[engine]
	mu     sync.Mutex
	ends   []time.Time
}

func (a *asksDue) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if e := a.engine.Load(); e != nil {
		ends, _ := e.Due("test")
		a.mu.Lock()
		a.ends = append(a.ends, ends)
		a.mu.Unlock()
	}
	return a.CA.CSRSign(ctx, req)
}

// A provider's supervisor asks from within the call.
func TestDueIsKnownToCallThatSignsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := &asksDue{}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { asking.CA = c; return signOnly{asking} }))
		asking.engine.Store(e)
		ends := e.held("default").NotAfter
		after(time.Until(e.held("default").RenewAt) + time.Second)
		if len(asking.ends) == 0 || !asking.ends[len(asking.ends)-1].Equal(ends) {
			t.Errorf("the calls saw %s, want %s last", asking.ends, ends)
		}
	})
}
