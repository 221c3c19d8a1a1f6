package secret_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// reloading is an engine whose list a test changes.
type reloading struct {
	*engine
	config secret.Config
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{}
	r.engine = newEngine(t, func(c *secret.Config) { r.config = *c })
	return r
}

// change takes over a list that differs in what change does to it.
func (r *reloading) change(change func(*secret.Config)) {
	r.t.Helper()
	if err := r.try(change); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloading) try(change func(*secret.Config)) error {
	c := r.config
	c.Secrets, c.Authorities = slices.Clone(c.Secrets), slices.Clone(c.Authorities)
	change(&c)
	err := r.Reload(c.Secrets, c.Authorities)
	if err == nil {
		r.config = c
	}
	return err
}

func nothing(*secret.Config) {}

// told counts what a watcher of a name is told.
func (r *reloading) told(name string) func() int {
	r.t.Helper()
	var mu sync.Mutex
	n := 0
	stop, err := r.Watch(agent, name, func(string) { mu.Lock(); defer mu.Unlock(); n++ })
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(stop)
	return func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func extra(t *testing.T, name, id string) secret.Spec {
	t.Helper()
	return secret.Spec{Name: name, Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: identity(t, id), TTL: ttl}
}

func TestReloadLeavesUnchangedSecretsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before, roots := r.held("default"), r.held("ROOTCA")
		told, toldRoots := r.told("default"), r.told("ROOTCA")
		r.change(nothing)
		r.change(func(c *secret.Config) { c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more")) })
		if after := r.held("default"); after.Version != before.Version || !after.RenewAt.Equal(before.RenewAt) || r.held("ROOTCA") != roots {
			t.Errorf("got %+v, had %+v", after, before)
		}
		if told() != 0 || toldRoots() != 0 {
			t.Errorf("watchers were notified %d and %d times", told(), toldRoots())
		}
		r.requests(2) // default's and more's
		if n := r.status("default").Rotations; n != 1 {
			t.Errorf("%d rotations", n)
		}

		// It goes on as before: the rotation comes when it was drawn.
		r.untilRenewal(-time.Second)
		if r.held("default").Version != before.Version {
			t.Error("it was renewed early")
		}
		after(2 * time.Second)
		if r.held("default").Version == before.Version || told() != 1 {
			t.Errorf("it was not renewed; watchers were notified %d times", told())
		}
	})
}

func TestWatchedNameBecomesKnownAndUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		told := r.told("more")
		if _, err := r.Peek(agent, "more"); !errors.Is(err, secret.ErrUnknown) {
			t.Errorf("before: %v", err)
		}
		r.change(func(c *secret.Config) { c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more")) })
		first := r.held("more")
		if n := told(); n != 2 { // known, and there
			t.Errorf("notified %d times", n)
		}
		r.change(func(c *secret.Config) { c.Secrets = c.Secrets[:2] })
		if _, err := r.Peek(agent, "more"); !errors.Is(err, secret.ErrUnknown) || told() != 3 {
			t.Errorf("after: %v, told %d times", err, told())
		}
		if len(r.Status()) != 2 {
			t.Errorf("status is of %d", len(r.Status()))
		}
		r.ca.Next(1, catest.Fault{Delay: time.Second})
		r.change(func(c *secret.Config) { c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more")) })
		r.notReady("more")
		after(2 * time.Second)
		if again := r.held("more"); again.Version == first.Version || told() != 5 {
			t.Errorf("what was let go of came back; told %d times", told())
		}
	})
}

func TestChangedIdentityIsServedOnceCertified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before := r.held("default")
		r.ca.Next(1, catest.Fault{Delay: 5 * time.Second})
		r.change(func(c *secret.Config) { c.Secrets[0].Identity = identity(t, "spiffe://example.org/other") })
		if r.held("default").Version != before.Version {
			t.Error("the old one was let go of before there was another")
		}
		after(6 * time.Second)
		if got := r.held("default").Identity.String(); got != "spiffe://example.org/other" {
			t.Errorf("got %s", got)
		}
		r.change(func(c *secret.Config) { c.Secrets[0].KeyType = pki.ECDSAP384 })
		if after := r.held("default"); after.Version == before.Version || r.requests(3)[2].ID == r.requests(3)[1].ID {
			t.Error("another kind of key is no new order")
		}
	})
}

func TestChangedRatioMovesRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before := r.held("default")
		after(time.Minute)
		r.change(func(c *secret.Config) { c.Secrets[0].RenewRatio = 0.25 })
		item := r.held("default")
		wait := item.RenewAt.Sub(item.Issued).Round(time.Minute)
		if item.Version != before.Version || wait < 43*time.Minute || wait > 47*time.Minute {
			t.Errorf("it is to be renewed after %s", wait)
		}
		r.requests(1)
	})
}

func TestOtherSignerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		second := catest.NewCA(catest.Options{Now: r.now})
		both := func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: second})
			c.Secrets[1].Authorities = []string{"test", "second"}
		}
		r.change(both)
		r.serves(rootPrint(r.ca), rootPrint(second))
		if r.held("default").Authority != "test" {
			t.Error("the signer was changed")
		}
		r.change(func(c *secret.Config) { c.Secrets[0].Authorities = []string{"second"} })
		if by := r.held("default").Authority; by != "second" {
			t.Errorf("signed by %q", by)
		}
		r.serves(rootPrint(r.ca), rootPrint(second))
		r.change(func(c *secret.Config) {
			c.Authorities = c.Authorities[1:]
			c.Secrets[1].Authorities = []string{"second"}
		})
		r.serves(rootPrint(second))
		r.requests(1)
		if n := len(second.Requests()); n != 1 {
			t.Errorf("the second was asked %d times", n)
		}
	})
}

func TestBundleOfMoreAuthoritiesGetsRootsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		second := catest.NewCA(catest.Options{Now: r.now})
		r.change(func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: signOnly{second}})
			more := extra(t, "more", "spiffe://example.org/more")
			more.Authorities = []string{"second"}
			c.Secrets = append(c.Secrets, more)
		})
		r.held("more")
		r.serves(rootPrint(r.ca))
		r.change(func(c *secret.Config) { c.Secrets[1].Authorities = []string{"test", "second"} })
		r.serves(rootPrint(r.ca), rootPrint(second))
		r.change(func(c *secret.Config) { c.Secrets[1].Authorities = []string{"second"} })
		r.serves(rootPrint(second))
	})
}

func TestNeededDroppedRootOutlivesReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before, old := r.held("default"), r.root()
		r.ca.Rotate()
		r.serves(old, r.root())
		r.change(nothing)
		r.serves(old, r.root())
		if r.held("default").Version != before.Version {
			t.Error("the certificate was replaced")
		}
	})
}

func TestNewPinsReplaceForbiddenRootsAndCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before, old := r.held("default"), r.ca.Bundle()
		r.ca.Rotate() // the old root is still served, as long as it is needed
		fresh := r.ca.Bundle()
		r.serves(old.Fingerprints()[0], fresh.Fingerprints()[0])
		r.change(func(c *secret.Config) { c.Authorities[0].PinnedRoots = fresh })
		r.serves(fresh.Fingerprints()[0])
		if r.held("default").Version != before.Version || r.status("default").Missing == "" {
			t.Error("the status does not say what is missing")
		}
		r.requests(1)
		after(time.Minute) // spread
		r.requests(2)
		if r.held("default").Version == before.Version {
			t.Error("a certificate under a root that is not pinned is still served")
		}
	})
}

func TestInvalidListChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before := r.held("default")
		err := r.try(func(c *secret.Config) {
			c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more"), secret.Spec{Name: "bad", Kind: secret.TrustBundle, Authorities: []string{"nobody"}})
		})
		if err == nil || !strings.Contains(err.Error(), `authority "nobody" is not configured`) {
			t.Errorf("got %v", err)
		}
		if _, err := r.Peek(agent, "more"); !errors.Is(err, secret.ErrUnknown) || r.held("default") != before {
			t.Errorf("something was taken over: %v", err)
		}
		r.untilRenewal(2 * time.Second)
		r.requests(2)
	})
}

func TestRequestInFlightIsRepeatedUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		r.ca.Next(1, catest.Fault{Hang: true})
		r.untilRenewal(time.Second)
		r.requests(2)
		r.change(nothing)
		asked := r.requests(3)
		if asked[1].ID != asked[2].ID || string(asked[1].CSR) != string(asked[2].CSR) {
			t.Error("it is another request")
		}
	})
}

func TestReloadRetriesFailuresAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		r.ca.Next(1, catest.Fault{Err: ca.ErrDenied})
		r.untilRenewal(2 * time.Second)
		r.requests(2)
		r.change(nothing)
		r.requests(3)
	})
}

func TestReloadAfterCloseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		told := r.told("unknown")
		r.Close()
		if err := r.try(nothing); !errors.Is(err, secret.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if told() != 1 {
			t.Errorf("a watcher of an unknown name was notified %d times of the end", told())
		}
	})
}

// TestConcurrentReloads is for the race detector, and for what is held.
func TestConcurrentReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		r.held("default")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					if _, err := r.Peek(agent, "default"); err != nil {
						t.Error(err)
					}
					stop, err := r.Watch(agent, "more", func(string) {})
					if err != nil {
						t.Error(err)
					}
					r.Kick("")
					r.Status()
					time.Sleep(time.Millisecond)
					stop()
				}
			})
		}
		for i := range 50 {
			r.change(func(c *secret.Config) {
				c.Secrets = c.Secrets[:2]
				if i%2 == 0 {
					c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more"))
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		r.held("default")
		r.serves(rootPrint(r.ca))
	})
}
