package secret_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// newHolding starts an engine whose leaf has to be replaced under a new root, which the
// readers of ROOTCA do not have yet. Its authority tells its roots only in replies.
func newHolding(t *testing.T, life time.Duration) (e *engine, everybody *atomic.Bool, before *secret.Item) {
	t.Helper()
	everybody = &atomic.Bool{}
	e = newEngine(t, func(c *secret.Config) {
		client(func(c *catest.CA) ca.Client { return signOnly{c} })(c)
		c.Secrets[0].TTL = life
		c.RootAcknowledged = func(bundles []string, root string) bool {
			if !slices.Equal(bundles, []string{"ROOTCA"}) || root == "" {
				t.Errorf("asked about %q in %q", root, bundles)
			}
			return everybody.Load()
		}
	})
	before = e.held("default") // the first is never held back
	e.ca.Rotate()
	e.untilRenewal(time.Millisecond)
	e.requests(2)
	e.serves(before.RootFingerprint, e.root())
	return e, everybody, before
}

func TestLeafFollowsRootOnceEverybodyHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, everybody, before := newHolding(t, ttl)
		after(4 * time.Second)
		if e.held("default").Version != before.Version {
			t.Fatal("the leaf did not wait")
		}
		everybody.Store(true)
		after(150 * time.Millisecond)
		if e.held("default").Version != before.Version {
			t.Fatal("it gave nobody a moment")
		}
		after(150 * time.Millisecond)
		if e.held("default").RootFingerprint != e.root() {
			t.Error("it waits on")
		}
		e.requests(2)
	})
}

// Another leaf may have brought the root a moment ago.
func TestLeafSettlesAfterRootIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) { c.RootAcknowledged = func([]string, string) bool { return true } })
		before := e.held("default")
		e.ca.Rotate()
		e.untilRenewal(time.Millisecond)
		e.requests(2)
		if e.held("default").Version != before.Version {
			t.Fatal("it gave nobody a moment")
		}
		after(300 * time.Millisecond)
		if e.held("default").RootFingerprint != e.root() {
			t.Error("it waits on")
		}
	})
}

func TestLeafWaitsFiveSecondsForNewRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, before := newHolding(t, ttl)
		after(4990 * time.Millisecond)
		if e.held("default").Version != before.Version {
			t.Fatal("the leaf did not wait")
		}
		after(10 * time.Millisecond)
		if e.held("default").RootFingerprint != e.root() {
			t.Error("it waits on")
		}
	})
}

func TestLeafIsNotHeldBeyondPreviousExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, before := newHolding(t, 6*time.Second)
		after(before.NotAfter.Sub(e.now()) + time.Millisecond)
		if e.held("default").RootFingerprint != e.root() {
			t.Error("it waits on")
		}
	})
}

func TestLeafUnderSameRootDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) { c.RootAcknowledged = func([]string, string) bool { return false } })
		before := e.held("default")
		e.untilRenewal(time.Millisecond)
		if e.held("default").Version == before.Version {
			t.Error("it waits")
		}
	})
}

func TestReleaseEndsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, before := newHolding(t, ttl)
		if err := e.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(6 * time.Second)
		e.notReady("default")
		stop, err := e.Watch(agent, "default", func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if got := e.held("default"); got.Version == before.Version {
			t.Error("what was released came back")
		}
	})
}
