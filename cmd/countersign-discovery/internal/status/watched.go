package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

// maxTroubled limits how many objects are listed by name.
const maxTroubled = 100

// Watched is the current state of the Kubernetes certificates and CAs that clients watch
// and may have.
type Watched struct {
	// Counts has one entry per cluster and kind.
	Counts []WatchedCount `json:"counts"`
	// Troubled lists those that are not valid, worst first; More is how many were left out.
	Troubled []Troubled `json:"troubled,omitempty"`
	More     int        `json:"more,omitempty"`
}

// WatchedCount counts the watched objects of one kind in a cluster, by state.
type WatchedCount struct {
	Cluster string `json:"cluster"`
	// Kind is "certificate" (with its key) or "ca".
	Kind      string `json:"kind"`
	Valid     int    `json:"valid"`
	Ending    int    `json:"ending"`
	Expired   int    `json:"expired"`
	Malformed int    `json:"malformed"`
	// FirstExpiry is the earliest expiry among the unexpired ones.
	FirstExpiry time.Time `json:"first_expiry,omitzero"`
}

// Troubled is an object that needs attention.
type Troubled struct {
	Cluster string        `json:"cluster"`
	Object  string        `json:"object"` // "secret shop/web" or "config map shop/web"
	Kind    string        `json:"kind"`
	State   secrets.State `json:"state"`
	Ends    time.Time     `json:"ends,omitzero"`
	Problem string        `json:"problem,omitempty"`
}

var kinds = [...]string{"certificate", "ca"}

func kindOf(w secrets.Watched) string {
	if w.CA {
		return kinds[1]
	}
	return kinds[0]
}

// WatchedOf counts what clients watch, in the clusters with these IDs as well.
func WatchedOf(ids []string, all []secrets.Watched) *Watched {
	w := &Watched{}
	counts := map[[2]string]*WatchedCount{}
	count := func(cluster, kind string) *WatchedCount {
		key := [2]string{cluster, kind}
		if counts[key] == nil {
			counts[key] = &WatchedCount{Cluster: cluster, Kind: kind}
		}
		return counts[key]
	}
	for _, id := range ids {
		for _, kind := range kinds {
			count(id, kind)
		}
	}
	for _, one := range all {
		count(one.Cluster, kindOf(one)).add(one)
		w.add(one)
	}
	for _, c := range counts {
		w.Counts = append(w.Counts, *c)
	}
	w.sort()
	return w
}

// Present returns the nonzero counts.
func (w *Watched) Present() []WatchedCount {
	return slices.DeleteFunc(slices.Clone(w.Counts), func(c WatchedCount) bool { return c.Valid+c.Ending+c.Expired+c.Malformed == 0 })
}

func (c *WatchedCount) add(one secrets.Watched) {
	*c.Of(one.State)++
	if ends := one.Ends; one.State == secrets.Valid || one.State == secrets.Ending {
		if c.FirstExpiry.IsZero() || ends.Before(c.FirstExpiry) {
			c.FirstExpiry = ends
		}
	}
}

// Of returns the counter of a state.
func (c *WatchedCount) Of(state secrets.State) *int {
	switch state {
	case secrets.Ending:
		return &c.Ending
	case secrets.Expired:
		return &c.Expired
	case secrets.Broken:
		return &c.Malformed
	}
	return &c.Valid
}

func (w *Watched) add(one secrets.Watched) {
	if one.State == secrets.Valid {
		return
	}
	object := "secret "
	if one.Kind == secrets.ConfigMap {
		object = "config map "
	}
	w.Troubled = append(w.Troubled, Troubled{
		one.Cluster, object + one.Namespace + "/" + one.Name, kindOf(one), one.State, one.Ends, one.Problem,
	})
}

// sort puts certificates before CAs, and the worst first.
func (w *Watched) sort() {
	slices.SortFunc(w.Counts, func(a, b WatchedCount) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(b.Kind, a.Kind))
	})
	slices.SortFunc(w.Troubled, func(a, b Troubled) int {
		return cmp.Or(cmp.Compare(slices.Index(secrets.States[:], a.State), slices.Index(secrets.States[:], b.State)), a.Ends.Compare(b.Ends),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Object, b.Object), cmp.Compare(b.Kind, a.Kind))
	})
	if n := len(w.Troubled); n > maxTroubled {
		w.Troubled, w.More = w.Troubled[:maxTroubled], n-maxTroubled
	}
}
