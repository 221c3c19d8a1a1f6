package secret_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// moveTo is a migration in one step: another authority in place of the first.
func moveTo(name string, to ca.Client) func(*secret.Config) {
	return func(c *secret.Config) {
		c.Authorities[0].Name, c.Authorities[0].Client = name, to
		for i := range c.Secrets {
			c.Secrets[i].Authorities = []string{name}
		}
	}
}

func TestRootsOfRemovedAuthorityStayForOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before, old := r.held("default"), rootPrint(r.ca)
		second := catest.NewCA(catest.Options{Now: r.now})
		r.change(moveTo("second", second))
		r.serves(old, rootPrint(second))
		if by := r.held("default").Authority; by != "second" {
			t.Errorf("signed by %q", by)
		}
		r.change(nothing)
		r.serves(old, rootPrint(second))
		after(before.NotAfter.Sub(r.now()) - time.Second)
		r.serves(old, rootPrint(second))
		after(2 * time.Second)
		r.serves(rootPrint(second))
		if n := len(r.ca.Requests()); n != 1 {
			t.Errorf("the authority that is gone was asked %d times", n)
		}
	})
}

func TestRootsOfRemovedAuthorityGoAtOnceWithoutOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.change(overlap(0))
		r.held("default")
		second := catest.NewCA(catest.Options{Now: r.now})
		r.change(moveTo("second", second))
		r.serves(rootPrint(second))
	})
}

func TestLeafOfRemovedAuthorityIsServedWhileNextIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before, old := r.held("default"), rootPrint(r.ca)
		second := catest.NewCA(catest.Options{Now: r.now})
		second.Always(catest.Fault{Err: ca.ErrUnavailable})
		r.change(moveTo("second", signOnly{second}))
		after(10 * time.Minute)
		r.serves(old)
		if r.held("default").Version != before.Version {
			t.Error("it is not served any more")
		}
		second.Always(catest.Fault{})
		after(time.Minute)
		r.serves(old, rootPrint(second))
	})
}

func TestPinsLeavingNoRootAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		leaf, roots := r.held("default"), r.held("ROOTCA")
		other := catest.NewCA(catest.Options{}).Bundle()
		err := r.try(func(c *secret.Config) {
			c.Authorities[0].PinnedRoots = other
			c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more"))
		})
		if err == nil || !strings.Contains(err.Error(), rootPrint(r.ca)) || !strings.Contains(err.Error(), `"ROOTCA"`) {
			t.Errorf("got %v", err)
		}
		if r.held("default") != leaf || r.held("ROOTCA") != roots {
			t.Error("something changed")
		}
		if _, err := r.Peek(agent, "more"); !errors.Is(err, secret.ErrUnknown) {
			t.Errorf("a name of the refused list: %v", err)
		}
	})
}

func TestNewPinsReplaceRootsFromReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.change(client(func(c *catest.CA) ca.Client { return signOnly{c} }))
		before := r.held("default")
		r.ca.Rotate()
		r.change(func(c *secret.Config) { c.Authorities[0].PinnedRoots = r.ca.Bundle() })
		r.serves(rootPrint(r.ca))
		if r.held("default").Version != before.Version {
			t.Error("the leaf was not held until its successor")
		}
		after(time.Minute)
		if r.held("default").RootFingerprint != rootPrint(r.ca) {
			t.Error("the leaf was not replaced")
		}
	})
}

func TestPinsExcludingOneAuthoritysRootLeaveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		second := catest.NewCA(catest.Options{Now: r.now})
		r.change(func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: second})
			c.Secrets[1].Authorities = []string{"test", "second"}
		})
		leaf := r.held("default")
		r.change(func(c *secret.Config) { c.Authorities[0].PinnedRoots = catest.NewCA(catest.Options{}).Bundle() })
		r.serves(rootPrint(second))
		if got := r.status("ROOTCA").Missing; !strings.Contains(got, `"test"`) {
			t.Errorf("the status of the roots says %q", got)
		}
		after(time.Minute)
		if got := r.status("default").Missing; !strings.Contains(got, leaf.RootFingerprint) || r.held("default").Version != leaf.Version {
			t.Errorf("the status of the leaf says %q", got)
		}
	})
}

func TestReloadKeepsPendingCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		r.ca.Next(1, catest.Fault{Break: func(d *catest.Draft) {
			d.Leaf.NotBefore = d.Leaf.NotBefore.Add(6 * time.Minute) // in 4 minutes
		}})
		r.change(func(c *secret.Config) { c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more")) })
		r.notReady("more")
		for range 5 {
			after(time.Minute)
			r.change(nothing)
		}
		r.held("more")
		r.requests(2)
		r.ca.Next(1, catest.Fault{Break: func(d *catest.Draft) { d.Leaf.NotBefore = d.Leaf.NotBefore.Add(6 * time.Minute) }})
		if err := r.Release(agent, "more"); err != nil {
			t.Fatal(err)
		}
		r.told("more")
		r.notReady("more")
		r.change(func(c *secret.Config) { c.Secrets[2].Identity = identity(t, "spiffe://example.org/another") })
		if got := r.held("more").Identity.String(); got != "spiffe://example.org/another" {
			t.Errorf("got %s", got)
		}
	})
}

func TestStuckClientCostsOneGoroutineAcrossReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{free: make(chan struct{})}
		s.stuck.Store(true)
		r := &reloading{}
		r.engine = newEngine(t, func(c *secret.Config) {
			client(func(c *catest.CA) ca.Client { s.Client = c; return s })(c)
			r.config = *c
		})
		for range 10 {
			after(3 * time.Second)
			r.change(nothing)
		}
		if n := s.waiting.Load(); n != 1 {
			t.Errorf("%d calls are stuck", n)
		}
		r.change(func(c *secret.Config) { c.Authorities[0].Client = r.ca }) // the way out
		r.held("default")
		s.stuck.Store(false)
		close(s.free)
	})
}
