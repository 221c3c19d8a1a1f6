package secret_test

import (
	"context"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// overlap sets how long dropped roots stay.

func overlap(d time.Duration) func(*secret.Config) {
	return func(c *secret.Config) { c.Authorities[0].RootOverlap = &d }
}

// root returns the fingerprint of the one root that the authority tells.

func (e *engine) root() string { return e.ca.Bundle().Fingerprints()[0] }

// serves checks which roots are served.

func (e *engine) serves(want ...string) {
	e.t.Helper()
	slices.Sort(want)
	if got := e.held("ROOTCA").RootFingerprints; !slices.Equal(got, want) {
		e.t.Fatalf("served are %v, want %v\n%s", got, want, e.logged())
	}
}

func TestDroppedRootStaysAsLongAsItsLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		leaf, old := e.held("default"), e.root()
		after(10 * time.Minute)
		e.ca.Rotate()
		e.serves(old, e.root())
		if e.held("default") != leaf {
			t.Error("a changed root made another leaf")
		}
		e.untilRenewal(time.Second)
		e.requests(2) // the rotation by time
		after(leaf.NotAfter.Sub(e.now()) - time.Second)
		e.serves(old, e.root())
		after(2 * time.Second)
		e.serves(e.root())
		if added, removed := e.count(secret.RootAdded, ""), e.count(secret.RootRemoved, ""); added != 2 || removed != 1 {
			t.Errorf("%d roots were notified as added, %d as removed", added, removed)
		}
	})
}

func TestDroppedRootStaysForOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(5*time.Minute))
		leaf, old := e.held("default"), e.root()
		e.ca.Rotate()
		after(5*time.Minute - time.Second)
		e.serves(old, e.root())
		if e.held("default") != leaf {
			t.Error("the leaf was replaced although peers can verify it")
		}
		after(2 * time.Second)
		e.serves(e.root())
		if got := e.held("default"); got.RootFingerprint != e.root() {
			t.Error("the leaf that no peer can verify was not replaced at once")
		}
		e.requests(2)
	})
}

func TestDroppedRootAndLeafGoAtOnceWithoutOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(0))
		e.held("default")
		after(time.Second)
		e.ca.Rotate()
		e.serves(e.root())
		if got := e.held("default"); got.RootFingerprint != e.root() {
			t.Error("the leaf that no peer can verify was not replaced at once")
		}
		e.requests(2)
	})
}

func TestReturningRootStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(5*time.Minute))
		e.held("default")
		before := e.ca.Bundle()
		e.ca.Rotate()
		after(time.Minute)
		both := e.ca.Bundle().Union(before)
		e.ca.SetRoots(both)
		after(10 * time.Minute)
		e.serves(both.Fingerprints()...)
		e.requests(1)
	})
}

func TestRootIsRemovedWhenItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := catest.NewCA(catest.Options{CALifetime: time.Hour + 10*time.Minute}).Bundle()
		e := newEngine(t, nil)
		e.held("default")
		current := e.ca.Bundle()
		e.ca.SetRoots(current.Union(short))
		e.serves(current.Union(short).Fingerprints()...)
		after(11 * time.Minute) // it is never dropped, and ends ten minutes after the start
		e.serves(e.ca.Bundle().Filter(current.Contains).Fingerprints()...)
	})
}

// The last set of an authority outlives its end alone, not beside roots that are valid.
func TestUnitedBundleLosesExpiredRootsOfOneAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := catest.NewCA(catest.Options{CALifetime: time.Hour + 10*time.Minute})
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "short", Client: short})
			for i := range c.Secrets {
				c.Secrets[i].Authorities = []string{"test", "short"}
			}
		})
		after(time.Second)
		e.serves(rootPrint(e.ca), rootPrint(short))
		after(11 * time.Minute)
		e.serves(rootPrint(e.ca))
		if missing := e.status("ROOTCA").Missing; !strings.Contains(missing, "short") {
			t.Errorf("missing is %q", missing)
		}
	})
}

func TestLastRootExpiresWithoutRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := catest.NewCA(catest.Options{CALifetime: time.Hour + 10*time.Minute})
		e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Client = short })
		e.held("ROOTCA")
		after(11 * time.Minute)
		e.notReady("ROOTCA")
		if e.status("ROOTCA").ExpiredSince.IsZero() || e.count(secret.RootRemoved, "") != 0 {
			t.Error("the status does not tell, or the root was removed")
		}
		after(time.Hour)
		told := 0
		for _, event := range e.events {
			if event.Kind == secret.Expired && event.Secret == "ROOTCA" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("the expiry was notified %d times", told)
		}
	})
}

func TestBundleIsServedBeforeItsLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, client(func(c *catest.CA) ca.Client { return signOnly{c} }))
		e.held("default")
		var mu sync.Mutex
		var order []string
		note := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			if leaf, err := e.Peek(agent, "default"); err == nil {
				roots, _ := e.Peek(agent, "ROOTCA")
				if !slices.Contains(roots.RootFingerprints, leaf.RootFingerprint) {
					t.Error("a leaf is served whose root is not")
				}
			}
		}
		for _, name := range []string{"default", "ROOTCA"} {
			stop, err := e.Watch(agent, name, note)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		e.ca.Rotate()
		e.untilRenewal(time.Second)
		if !slices.Equal(order, []string{"ROOTCA", "default"}) {
			t.Errorf("notified were %v", order)
		}
	})
}

func TestUnneededRootChangeLeavesLeafAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		leaf, roots := e.held("default"), e.held("ROOTCA")
		e.ca.SetRoots(pki.NewBundle(e.ca.Bundle().Certificates()...)) // the same again
		synctest.Wait()
		if e.held("ROOTCA") != roots {
			t.Error("the same roots are another item")
		}
		e.ca.SetRoots(e.ca.Bundle().Union(catest.NewCA(catest.Options{}).Bundle()))
		if e.held("ROOTCA") == roots || e.held("default") != leaf {
			t.Error("one more root must change the bundle and not the leaf")
		}
		e.requests(1)
	})
}

func TestReissuedRootKeepsLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(0))
		leaf := e.held("default")
		again := issueAgain(t, e.ca)
		e.ca.SetRoots(again)
		e.serves(again.Fingerprints()...)
		got := e.held("default")
		if got.Version != leaf.Version || got.RootFingerprint != again.Fingerprints()[0] {
			t.Errorf("got %v under the root %s", got, got.RootFingerprint)
		}
		e.requests(1)
	})
}

// issueAgain makes another root certificate of the same name and key.

func issueAgain(t *testing.T, c *catest.CA) *pki.Bundle {
	t.Helper()
	key, err := pki.ParseKey(c.IstioFiles()["ca-key.pem"])
	if err != nil {
		t.Fatal(err)
	}
	root := *c.Bundle().Certificates()[0]
	root.SerialNumber = big.NewInt(7)
	return pki.NewBundle(certtest.Sign(t, &root, &root, key.Public(), key))
}

func TestPinnedRootsLimitNewRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].PinnedRoots = c.Authorities[0].Client.(*catest.CA).Bundle()
		})
		leaf, pinned := e.held("default"), e.root()
		e.ca.SetRoots(e.ca.Bundle().Union(catest.NewCA(catest.Options{}).Bundle()))
		e.serves(pinned)
		e.ca.Rotate()
		e.serves(pinned)
		if e.count(secret.Failed, "roots") != 1 {
			t.Errorf("events %v", e.events)
		}
		after(leaf.NotAfter.Sub(e.now()) - time.Second)
		e.serves(pinned)
		if e.held("default") != leaf {
			t.Error("a leaf under a root that is not pinned is served")
		}
	})
}

func TestBundleOfSeveralAuthoritiesHoldsAllRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &breaking{CA: catest.NewCA(catest.Options{}), err: ca.ErrUnavailable}
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other})
			c.Secrets[1].Authorities = []string{"test", "other"}
		})
		e.serves(e.root()) // one that is away does not hold up the other
		other.mu.Lock()
		other.err = nil
		other.mu.Unlock()
		e.Kick("other")
		after(2 * time.Second)
		e.serves(e.root(), other.Bundle().Fingerprints()[0])
	})
}

func TestDisagreeingReplicasAreNotAskedConstantly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			overlap(0)(c)
			client(func(c *catest.CA) ca.Client { return &rotating{c} })(c)
			again := c.Secrets[0]
			again.Name, again.Identity = "again", identity(t, "spiffe://example.org/again")
			c.Secrets = append(c.Secrets, again)
		})
		after(5 * time.Minute)
		if n := len(e.ca.Requests()); n > 40 {
			t.Errorf("%d requests in five minutes", n)
		}
	})
}

// rotating has a new root for every request, so that each leaf loses the other's.

type rotating struct{ c *catest.CA }

func (r *rotating) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	r.c.Rotate()
	return r.c.CSRSign(ctx, req)
}

// late answers with what was true when it was asked.

type late struct {
	*catest.CA
	hold chan struct{}
}

func (l *late) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	reply, err := l.CA.CSRSign(ctx, req)
	if l.hold != nil {
		<-l.hold
	}
	return reply, err
}

func TestReplyFromBeforeRotationDoesNotKeepOldRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{hold: make(chan struct{})}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { l.CA = c; return l }))
		synctest.Wait()
		old := e.root()
		after(time.Second)
		e.ca.Rotate()
		e.serves(e.root()) // no leaf is held that the old one would stay for
		close(l.hold)
		leaf := e.held("default")
		e.serves(old, e.root())
		after(leaf.NotAfter.Sub(e.now()) + time.Second)
		e.serves(e.root())
	})
}
