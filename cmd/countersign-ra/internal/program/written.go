package program

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// publisher is what writes an authority's roots in a cluster.
type publisher string

const (
	trustBundles publisher = "trust bundles"
	meshRoots    publisher = "the mesh"
)

// publishersOf returns what writes an authority's roots in each cluster.
func publishersOf(c config.Config) func(authority string) []publisher {
	return func(authority string) (all []publisher) {
		if slices.ContainsFunc(bundlesOf(c), func(b trustbundle.Bundle) bool { return b.Authority == authority }) {
			all = append(all, trustBundles)
		}
		if c.Mesh.Publishes(authority) && c.Mesh.Roots.As == config.AsConfigMap {
			all = append(all, meshRoots)
		}
		return all
	}
}

// exit is how long a place can delay a new root. Who owns its objects, or keeps its API server from
// being reached, does not decide about the roots of all others.
const exit = time.Hour

// turns is how often a place can take the same roots back. One that has and lacks them by turns would
// delay a new root without end.
const turns = 3

// settling is how long a new leader records nothing, as it does not know yet what places have, and how
// long a place lacks roots before that is recorded.
const settling = time.Minute

// place is where one publisher writes an authority's roots.
type place struct {
	authority, cluster string
	by                 publisher
}

// key identifies a place among those of its authority.
func (p place) key() string { return p.cluster + "/" + string(p.by) }

// rootRecord is the engine, as far as places are concerned.
type rootRecord interface {
	RootsWritten(authority string, roots *pki.Bundle)
	Roots(authority string) *pki.Bundle
	Lacking(authority string) map[string]time.Time
	SetLacking(authority string, since map[string]time.Time)
}

// written gathers where roots are published. A root counts as published when all places have it: a
// cluster that is away delays new roots, as its pods verify the others', but for [exit] only. A root
// counts no longer once a place is known to lack it: it was removed there, or the cluster is new. What
// a cluster that cannot be reached has now is not known, and changes nothing.
type written struct {
	record     rootRecord // of what all places should have, and do; it does not block
	publishers func(authority string) []publisher
	began      time.Time

	order sync.Mutex // held during the call, so that the last call has the current roots

	mu      sync.Mutex
	ids     []string // of all clusters
	have    map[place]*pki.Bundle
	lacking map[place]lack
	told    map[string]answer // by authority: what was published last
}

// lack is that a place lacks wanted roots, or did.
type lack struct {
	wanted *pki.Bundle
	since  time.Time // zero: it has them now
	times  int       // with the same wanted roots
}

// answer is which of the wanted roots all places have.
type answer struct{ common, wanted *pki.Bundle }

func newWritten(record rootRecord, publishers func(string) []publisher) *written {
	return &written{
		record: record, publishers: publishers, began: time.Now(),
		have: map[place]*pki.Bundle{}, lacking: map[place]lack{}, told: map[string]answer{},
	}
}

// hook returns the function that receives what a publisher has written in a cluster.
func (w *written) hook(cluster string, by publisher) func(authority string, roots *pki.Bundle) {
	return func(authority string, roots *pki.Bundle) {
		w.change(func() { w.have[place{authority, cluster, by}] = roots })
	}
}

// forget drops what is known of a cluster that is reached in another way now.
func (w *written) forget(cluster string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.have, func(p place, _ *pki.Bundle) bool { return p.cluster == cluster })
}

// members sets which clusters there are, and looks at how long roots have been lacking.
func (w *written) members(ids []string) {
	w.change(func() {
		w.ids = ids
		maps.DeleteFunc(w.lacking, func(p place, _ lack) bool { return !slices.Contains(ids, p.cluster) })
	})
}

// change publishes the roots that are everywhere after a change, if they are others than before.
func (w *written) change(change func()) {
	w.order.Lock()
	defer w.order.Unlock()
	w.mu.Lock()
	change()
	now, changed, late := time.Now(), map[string]*pki.Bundle{}, map[string]map[string]time.Time{}
	for authority := range w.authorities() {
		w.look(authority, now)
		if now.Sub(w.began) >= settling {
			late[authority] = w.late(authority, now)
		}
		next, last := answer{w.common(authority, now), w.record.Roots(authority)}, w.told[authority]
		if next.common != nil && (last.common == nil || !next.common.Equal(last.common) || !next.wanted.Equal(last.wanted)) {
			w.told[authority], changed[authority] = next, next.common
		}
	}
	w.mu.Unlock()
	for authority, since := range late {
		w.record.SetLacking(authority, since)
	}
	for authority, roots := range changed {
		w.record.RootsWritten(authority, roots)
	}
}

// authorities are those of which anything was written. The lock is held.
func (w *written) authorities() map[string]bool {
	all := map[string]bool{}
	for p := range w.have {
		all[p.authority] = true
	}
	return all
}

// places are those of an authority. The lock is held.
func (w *written) places(authority string) (all []place) {
	for _, id := range w.ids {
		for _, by := range w.publishers(authority) {
			all = append(all, place{authority, id, by})
		}
	}
	return all
}

// look notes which places lack a root. The lock is held.
func (w *written) look(authority string, now time.Time) {
	wanted, before := w.record.Roots(authority), w.record.Lacking(authority)
	for _, p := range w.places(authority) {
		l := w.lacking[p]
		if l.since.IsZero() && !l.wanted.Equal(wanted) {
			l = lack{wanted: wanted}
		}
		switch has, known := w.have[p]; {
		case wanted.Filter(has.Contains).Len() == wanted.Len():
			l.since = time.Time{}
		case l.since.IsZero():
			if l.since = now; known { // a cluster that is reached anew does not count
				l.times++
			}
			if since := before[p.key()]; !since.IsZero() && since.Before(now) { // under a former leader
				l.since = since
			}
		}
		w.lacking[p] = l
	}
}

// late returns since when places lack roots, if it is not brief. The lock is held.
func (w *written) late(authority string, now time.Time) map[string]time.Time {
	since := map[string]time.Time{}
	for _, p := range w.places(authority) {
		if l := w.lacking[p]; !l.since.IsZero() && now.Sub(l.since) >= settling {
			since[p.key()] = l.since.UTC().Truncate(time.Second)
		}
	}
	return since
}

// allLeft returns the places that no root waits for any more.
func (w *written) allLeft() (all []place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for p, l := range w.lacking {
		if l.long(now) {
			all = append(all, p)
		}
	}
	return all
}

// leftIn names those of a cluster.
func (w *written) leftIn(cluster string) (all []string) {
	for _, p := range w.allLeft() {
		if p.cluster == cluster {
			all = append(all, fmt.Sprintf("roots of %s in %s", p.authority, p.by))
		}
	}
	slices.Sort(all)
	return all
}

// left reports whether no root waits for a place any more.
func (w *written) left(p place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lacking[p].long(time.Now())
}

// long reports whether a place has lacked roots for so long that none waits for it any more.
func (l lack) long(now time.Time) bool { return !l.since.IsZero() && now.Sub(l.since) >= exit }

// ignored reports whether what a place has does not count. The first time that it lacks roots, they are
// new. The lock is held.
func (w *written) ignored(p place, now time.Time) bool {
	l := w.lacking[p]
	return l.long(now) || !l.since.IsZero() && l.times > turns+1
}

// common returns the roots that all places have, apart from those that no root waits for; nil, if that
// is not known. The lock is held.
func (w *written) common(authority string, now time.Time) (common *pki.Bundle) {
	for _, p := range w.places(authority) {
		if w.ignored(p, now) {
			continue
		}
		roots, known := w.have[p]
		if !known {
			return nil
		}
		if common == nil {
			common = roots
		}
		common = common.Filter(roots.Contains)
	}
	return common
}
