package program

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// quorum is a written of one authority, with the calls that it made.
type quorum struct {
	*written
	wants *pki.Bundle
	told  []*pki.Bundle
}

func newQuorum(t *testing.T, wants *pki.Bundle, by ...publisher) *quorum {
	r := &quorum{wants: wants}
	r.written = newWritten(func(authority string, roots *pki.Bundle) {
		if authority != "vault" {
			t.Errorf("notified of %s", authority)
		}
		r.told = append(r.told, roots)
	}, func(string) *pki.Bundle { return r.wants }, func(string) []publisher { return by })
	return r
}

func (r *quorum) last() []string {
	if len(r.told) == 0 {
		return nil
	}
	return r.told[len(r.told)-1].Fingerprints()
}

func (r *quorum) note(cluster string, by publisher, roots *pki.Bundle) {
	r.hook(cluster, by)("vault", roots)
}

func (r *quorum) demand(t *testing.T, what string, roots *pki.Bundle) {
	t.Helper()
	if !slices.Equal(r.last(), roots.Fingerprints()) {
		t.Errorf("%s, and %v are published", what, r.last())
	}
}

func TestRootsCountAsPublishedWhenAllClustersHaveThem(t *testing.T) {
	one, two := newRoot(t), newRoot(t)
	both := one.Union(two)
	w := newQuorum(t, both, trustBundles)

	w.members([]string{"home", "east"})
	w.note("home", trustBundles, both)
	w.demand(t, "east has none", nil)
	w.note("east", trustBundles, one)
	w.demand(t, "east has one", one)
	w.note("east", trustBundles, both)
	w.demand(t, "all have both", both)

	// The bundle in east is emptied, and cannot be put right at once.
	w.note("east", trustBundles, pki.NewBundle())
	w.demand(t, "east lacks all", pki.NewBundle())
	w.note("east", trustBundles, both)

	// West joins, with a bundle of last year.
	w.members([]string{"home", "east", "west"})
	w.demand(t, "west is unknown", both)
	w.note("west", trustBundles, one)
	w.demand(t, "west has one", one)
	w.members([]string{"home", "east"})
	w.demand(t, "west has left", both)

	// One that is reached anew may be another cluster; one that is gone delays no other.
	n := len(w.told)
	w.forget("east")
	w.wants = both.Union(newRoot(t))
	w.note("home", trustBundles, w.wants)
	if len(w.told) != n {
		t.Errorf("east is new, and %v are published", w.last())
	}
	w.members([]string{"home"})
	w.demand(t, "east is gone", w.wants)
	w.members([]string{"home"})
	w.members(nil)
	if len(w.told) != n+1 {
		t.Error("notified again without a change")
	}
}

func TestRootIsWrittenWhenTrustBundlesAndMeshHaveIt(t *testing.T) {
	one, two := newRoot(t), newRoot(t)
	both := one.Union(two)
	w := newQuorum(t, both, trustBundles, meshRoots)
	w.members([]string{"home"})
	w.note("home", trustBundles, both)
	w.demand(t, "the mesh has none", nil)
	w.note("home", meshRoots, one)
	w.demand(t, "the mesh has one", one)
	w.note("home", meshRoots, both)
	w.demand(t, "both have both", both)
	w.note("home", trustBundles, pki.NewBundle())
	w.demand(t, "the trust bundle lost them", pki.NewBundle())
}

// A cluster that is away, or whose trust bundle belongs to another program, does not decide about the
// roots of all others.
func TestPlaceDelaysARootForAnHourAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newQuorum(t, one, trustBundles, meshRoots)
		clusters := []string{"home", "east"}
		look := func(for_ time.Duration) {
			for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(lookEvery) {
				w.members(clusters)
			}
		}
		for _, id := range clusters {
			w.note(id, trustBundles, one)
			w.note(id, meshRoots, one)
		}
		look(3 * time.Hour) // nothing is lacking
		w.wants = both
		w.note("home", meshRoots, both) // its trust bundle belongs to another program, and east is away
		look(59 * time.Minute)
		w.demand(t, "within the hour", one)
		look(2 * time.Minute)
		w.demand(t, "after it", both)
		if !w.left(place{"vault", "east", meshRoots}) || w.left(place{"vault", "home", meshRoots}) {
			t.Error("the wrong places are left behind")
		}
		w.note("east", meshRoots, both)
		look(48 * time.Hour)
		w.demand(t, "two days later", both)
		if w.left(place{"vault", "east", meshRoots}) {
			t.Error("east is left behind though it has the roots")
		}

		// The hour starts anew, and without any place that has a root, it does not count.
		w.note("east", meshRoots, one)
		w.demand(t, "east lost it", one)
		w.note("home", meshRoots, one)
		look(48 * time.Hour)
		w.demand(t, "while all lack it", one)
	})
}

func newRoot(t *testing.T) *pki.Bundle {
	t.Helper()
	return pki.NewBundle(certtest.Root(t).Cert)
}

// A cluster that has a root and lacks it by turns does not begin the wait anew with each turn.
func TestPlaceTakesARootBackThreeTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newQuorum(t, one, meshRoots)
		w.members([]string{"home", "east"})
		for _, id := range w.ids {
			w.note(id, meshRoots, one)
		}
		turns := func(all *pki.Bundle) (back int) {
			w.wants = all
			w.note("home", meshRoots, all)
			for range 100 {
				w.note("east", meshRoots, all)
				w.demand(t, "all have them", all)
				time.Sleep(10 * time.Minute)
				w.note("east", meshRoots, one)
				if !slices.Equal(w.last(), all.Fingerprints()) {
					back++
				}
				time.Sleep(10 * time.Minute)
			}
			w.note("east", meshRoots, all)
			return back
		}
		for _, all := range []*pki.Bundle{both, both.Union(newRoot(t))} { // another root is waited for anew
			if n := turns(all); n < 1 || n > 3 {
				t.Errorf("taken back %d times", n)
			}
			w.forget("east") // a cluster that is reached anew is not left behind for its turns
			w.members(w.ids)
			if w.left(place{"vault", "east", meshRoots}) {
				t.Error("east is left behind at once")
			}
			w.note("east", meshRoots, all)
		}
	})
}
