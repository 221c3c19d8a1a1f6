package program

import (
	"maps"
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
	*records
}

// records are what an engine keeps of the authority vault.
type records struct {
	t       *testing.T
	wants   *pki.Bundle
	told    []*pki.Bundle
	lacking map[string]time.Time
	writes  int
}

func (r *records) RootsWritten(authority string, roots *pki.Bundle) {
	if authority != "vault" {
		r.t.Errorf("notified of %s", authority)
	}
	r.told = append(r.told, roots)
}

func (r *records) Roots(string) *pki.Bundle            { return r.wants }
func (r *records) Lacking(string) map[string]time.Time { return r.lacking }

func (r *records) SetLacking(_ string, since map[string]time.Time) {
	if !maps.EqualFunc(r.lacking, since, time.Time.Equal) {
		r.lacking = maps.Clone(since)
		r.writes++
	}
}

func newQuorum(t *testing.T, wants *pki.Bundle, by ...publisher) *quorum {
	r := &quorum{records: &records{t: t, wants: wants}}
	r.lead(by...)
	return r
}

// lead begins anew with what the records have, as another replica does.
func (r *quorum) lead(by ...publisher) {
	r.written = newWritten(r.records, func(string) []publisher { return by })
}

func (r *quorum) last() []string {
	if len(r.records.told) == 0 {
		return nil
	}
	return r.records.told[len(r.records.told)-1].Fingerprints()
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
	n := len(w.records.told)
	w.forget("east")
	w.wants = both.Union(newRoot(t))
	w.note("home", trustBundles, w.wants)
	if len(w.records.told) != n {
		t.Errorf("east is new, and %v are published", w.last())
	}
	w.members([]string{"home"})
	w.demand(t, "east is gone", w.wants)
	w.members([]string{"home"})
	w.members(nil)
	if len(w.records.told) != n+1 {
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

// Leaders that follow each other do not give a place its hour anew.
func TestHourOfAPlaceOutlivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newQuorum(t, one, meshRoots)
		clusters := []string{"home", "east"}
		look := func(for_ time.Duration) {
			for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(lookEvery) {
				w.members(clusters)
			}
		}
		term := func(home, east *pki.Bundle, lasts time.Duration) {
			w.lead(meshRoots)
			w.note("home", meshRoots, home)
			w.members(clusters)
			if east != nil {
				w.note("east", meshRoots, east)
			}
			look(lasts)
		}
		term(one, one, 2*time.Hour)
		if w.writes != 0 {
			t.Errorf("%d writes while nothing is lacking", w.writes)
		}
		w.wants = both
		for range 3 {
			term(both, nil, 15*time.Minute)
			w.demand(t, "within the hour", one)
		}
		if w.writes != 1 {
			t.Errorf("%d writes for one place that lacks roots", w.writes)
		}
		term(both, nil, 16*time.Minute)
		w.demand(t, "an hour later", both)
		if left := w.allLeft(); len(left) != 1 || left[0].cluster != "east" {
			t.Errorf("%v are left behind", left)
		}

		// It has the root when yet another leads, and the next hour is a new one.
		term(both, both, 2*time.Minute)
		if len(w.records.lacking) != 0 || len(w.allLeft()) != 0 {
			t.Errorf("%v are recorded, %v are left behind", w.records.lacking, w.allLeft())
		}
		w.wants = both.Union(newRoot(t))
		term(w.wants, both, 50*time.Minute)
		w.demand(t, "within the next hour", both)

		// A record of a clock that was ahead does not count.
		w.records.lacking = map[string]time.Time{"east/the mesh": time.Now().Add(time.Hour)}
		term(w.wants, both, 59*time.Minute)
		w.demand(t, "within an hour of a clock that was ahead", both)
		look(2 * time.Minute)
		w.demand(t, "after it", w.wants)
	})
}
