package program

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

// maxTroubled limits how many objects are listed by name.
const maxTroubled = 100

// watching is the current state of the Kubernetes certificates and CAs that clients watch
// and may have.
type watching struct {
	// Counts has one entry per cluster and kind.
	Counts []watchedCount `json:"counts"`
	// Troubled lists those that are not valid, worst first; More is how many were left out.
	Troubled []troubled `json:"troubled,omitempty"`
	More     int        `json:"more,omitempty"`
}

type watchedCount struct {
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

// troubled is an object that needs attention.
type troubled struct {
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

// watching includes known clusters of which nothing is watched.
func (k *clusters) watching() *watching {
	var ids []string
	for _, s := range k.Status() {
		ids = append(ids, s.ID)
	}
	return watchingOf(ids, k.secrets.Watched())
}

func watchingOf(ids []string, all []secrets.Watched) *watching {
	w := &watching{}
	counts := map[[2]string]*watchedCount{}
	count := func(cluster, kind string) *watchedCount {
		key := [2]string{cluster, kind}
		if counts[key] == nil {
			counts[key] = &watchedCount{Cluster: cluster, Kind: kind}
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
func (w *watching) Present() []watchedCount {
	return slices.DeleteFunc(slices.Clone(w.Counts), func(c watchedCount) bool { return c.Valid+c.Ending+c.Expired+c.Malformed == 0 })
}

func (c *watchedCount) add(one secrets.Watched) {
	*c.of(one.State)++
	if ends := one.Ends; one.State == secrets.Valid || one.State == secrets.Ending {
		if c.FirstExpiry.IsZero() || ends.Before(c.FirstExpiry) {
			c.FirstExpiry = ends
		}
	}
}

// of returns the counter of a state.
func (c *watchedCount) of(state secrets.State) *int {
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

func (w *watching) add(one secrets.Watched) {
	if one.State == secrets.Valid {
		return
	}
	object := "secret "
	if one.Kind == secrets.ConfigMap {
		object = "config map "
	}
	w.Troubled = append(w.Troubled, troubled{
		one.Cluster, object + one.Namespace + "/" + one.Name, kindOf(one), one.State, one.Ends, one.Problem,
	})
}

// sort puts certificates before CAs, and the worst first.
func (w *watching) sort() {
	slices.SortFunc(w.Counts, func(a, b watchedCount) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(b.Kind, a.Kind))
	})
	slices.SortFunc(w.Troubled, func(a, b troubled) int {
		return cmp.Or(cmp.Compare(slices.Index(secrets.States[:], a.State), slices.Index(secrets.States[:], b.State)), a.Ends.Compare(b.Ends),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Object, b.Object), cmp.Compare(b.Kind, a.Kind))
	})
	if n := len(w.Troubled); n > maxTroubled {
		w.Troubled, w.More = w.Troubled[:maxTroubled], n-maxTroubled
	}
}

var (
	watchedDesc = desc("watched_secrets", "Kubernetes certificates and CAs that clients watch, by current state: valid, ending (the last sixth of the lifetime, a week at most), expired, malformed.",
		"cluster", "kind", "state")
	firstEndDesc = desc("watched_secrets_first_expiry_timestamp_seconds", "Earliest expiry among the unexpired watched secrets.", "cluster", "kind")
)

func (g gatherer) watching(w *watching) {
	for _, c := range w.Counts {
		for _, state := range secrets.States {
			g.gauge(watchedDesc, float64(*c.of(state)), c.Cluster, c.Kind, string(state))
		}
		if !c.FirstExpiry.IsZero() {
			g.gauge(firstEndDesc, float64(c.FirstExpiry.Unix()), c.Cluster, c.Kind)
		}
	}
}
