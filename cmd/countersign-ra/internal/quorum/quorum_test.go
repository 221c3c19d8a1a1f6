package quorum

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// trial is a Quorum of one authority, with the calls that it made.
type trial struct {
	*Quorum
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

func newTrial(t *testing.T, wants *pki.Bundle, by ...Publisher) *trial {
	r := &trial{records: &records{t: t, wants: wants}}
	r.lead(by...)
	return r
}

// lead begins anew with what the records have, as another replica does.
func (r *trial) lead(by ...Publisher) {
	r.Quorum = New(r.records, func(string) []Publisher { return by })
}

func (r *trial) last() []string {
	if len(r.records.told) == 0 {
		return nil
	}
	return r.records.told[len(r.records.told)-1].Fingerprints()
}

func (r *trial) note(cluster string, by Publisher, roots *pki.Bundle) {
	r.Hook(cluster, by)("vault", roots)
}

func (r *trial) demand(t *testing.T, what string, roots *pki.Bundle) {
	t.Helper()
	if !slices.Equal(r.last(), roots.Fingerprints()) {
		t.Errorf("%s, and %v are published", what, r.last())
	}
}

func TestRootsCountAsPublishedWhenAllClustersHaveThem(t *testing.T) {
	one, two := newRoot(t), newRoot(t)
	both := one.Union(two)
	w := newTrial(t, both, TrustBundles)

	w.Members([]string{"home", "east"})
	w.note("home", TrustBundles, both)
	w.demand(t, "east has none", nil)
	w.note("east", TrustBundles, one)
	w.demand(t, "east has one", one)
	w.note("east", TrustBundles, both)
	w.demand(t, "all have both", both)

	// The bundle in east is emptied, and cannot be put right at once.
	w.note("east", TrustBundles, pki.NewBundle())
	w.demand(t, "east lacks all", pki.NewBundle())
	w.note("east", TrustBundles, both)

	// West joins, with a bundle of last year.
	w.Members([]string{"home", "east", "west"})
	w.demand(t, "west is unknown", both)
	w.note("west", TrustBundles, one)
	w.demand(t, "west has one", one)
	w.Members([]string{"home", "east"})
	w.demand(t, "west has left", both)

	// One that is reached anew may be another cluster; one that is gone delays no other.
	n := len(w.records.told)
	w.Forget("east")
	w.wants = both.Union(newRoot(t))
	w.note("home", TrustBundles, w.wants)
	if len(w.records.told) != n {
		t.Errorf("east is new, and %v are published", w.last())
	}
	w.Members([]string{"home"})
	w.demand(t, "east is gone", w.wants)
	w.Members([]string{"home"})
	w.Members(nil)
	if len(w.records.told) != n+1 {
		t.Error("notified again without a change")
	}
}

func TestRootIsWrittenWhenTrustBundlesAndMeshHaveIt(t *testing.T) {
	one, two := newRoot(t), newRoot(t)
	both := one.Union(two)
	w := newTrial(t, both, TrustBundles, MeshRoots)
	w.Members([]string{"home"})
	w.note("home", TrustBundles, both)
	w.demand(t, "the mesh has none", nil)
	w.note("home", MeshRoots, one)
	w.demand(t, "the mesh has one", one)
	w.note("home", MeshRoots, both)
	w.demand(t, "both have both", both)
	w.note("home", TrustBundles, pki.NewBundle())
	w.demand(t, "the trust bundle lost them", pki.NewBundle())
}

// A cluster that is away, or whose trust bundle belongs to another program, does not decide about the
// roots of all others.
func TestPlaceDelaysARootForAnHourAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newTrial(t, one, TrustBundles, MeshRoots)
		clusters := []string{"home", "east"}
		look := func(for_ time.Duration) {
			for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(lookEvery) {
				w.Members(clusters)
			}
		}
		for _, id := range clusters {
			w.note(id, TrustBundles, one)
			w.note(id, MeshRoots, one)
		}
		look(3 * time.Hour) // nothing is lacking
		w.wants = both
		w.note("home", MeshRoots, both) // its trust bundle belongs to another program, and east is away
		look(59 * time.Minute)
		w.demand(t, "within the hour", one)
		look(2 * time.Minute)
		w.demand(t, "after it", both)
		if !w.IsLeft(Place{"vault", "east", MeshRoots}) || w.IsLeft(Place{"vault", "home", MeshRoots}) {
			t.Error("the wrong places are left behind")
		}
		w.note("east", MeshRoots, both)
		look(48 * time.Hour)
		w.demand(t, "two days later", both)
		if w.IsLeft(Place{"vault", "east", MeshRoots}) {
			t.Error("east is left behind though it has the roots")
		}

		// The hour starts anew, and without any place that has a root, it does not count.
		w.note("east", MeshRoots, one)
		w.demand(t, "east lost it", one)
		w.note("home", MeshRoots, one)
		look(48 * time.Hour)
		w.demand(t, "while all lack it", one)
	})
}

// lookEvery is how often the members are set.
const lookEvery = 10 * time.Second

func newRoot(t *testing.T) *pki.Bundle {
	t.Helper()
	return pki.NewBundle(certtest.Root(t).Cert)
}

// A cluster that has a root and lacks it by turns does not begin the wait anew with each turn.
func TestPlaceTakesARootBackThreeTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newTrial(t, one, MeshRoots)
		w.Members([]string{"home", "east"})
		for _, id := range w.ids {
			w.note(id, MeshRoots, one)
		}
		turns := func(all *pki.Bundle) (back int) {
			w.wants = all
			w.note("home", MeshRoots, all)
			for range 100 {
				w.note("east", MeshRoots, all)
				w.demand(t, "all have them", all)
				time.Sleep(10 * time.Minute)
				w.note("east", MeshRoots, one)
				if !slices.Equal(w.last(), all.Fingerprints()) {
					back++
				}
				time.Sleep(10 * time.Minute)
			}
			w.note("east", MeshRoots, all)
			return back
		}
		for _, all := range []*pki.Bundle{both, both.Union(newRoot(t))} { // another root is waited for anew
			if n := turns(all); n < 1 || n > 3 {
				t.Errorf("taken back %d times", n)
			}
			w.Forget("east") // a cluster that is reached anew is not left behind for its turns
			w.Members(w.ids)
			if w.IsLeft(Place{"vault", "east", MeshRoots}) {
				t.Error("east is left behind at once")
			}
			w.note("east", MeshRoots, all)
		}
	})
}

// Leaders that follow each other do not give a place its hour anew.
func TestHourOfAPlaceOutlivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		both := one.Union(two)
		w := newTrial(t, one, MeshRoots)
		clusters := []string{"home", "east"}
		look := func(for_ time.Duration) {
			for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(lookEvery) {
				w.Members(clusters)
			}
		}
		term := func(home, east *pki.Bundle, lasts time.Duration) {
			w.lead(MeshRoots)
			w.note("home", MeshRoots, home)
			w.Members(clusters)
			if east != nil {
				w.note("east", MeshRoots, east)
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
		if left := w.Left(); len(left) != 1 || left[0].Cluster != "east" {
			t.Errorf("%v are left behind", left)
		}

		// It has the root when yet another leads, and the next hour is a new one.
		term(both, both, 2*time.Minute)
		if len(w.records.lacking) != 0 || len(w.Left()) != 0 {
			t.Errorf("%v are recorded, %v are left behind", w.records.lacking, w.Left())
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
