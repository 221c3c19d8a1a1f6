// Package quorum decides from when on a new root of an authority counts as published: when all places
// that publish it have it. Who owns the objects of one place, or keeps its API server from being reached,
// does not decide for all others.
package quorum

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Publisher is what writes an authority's roots in a cluster.
type Publisher string

// The publishers. A [Record] has their names.
const (
	TrustBundles Publisher = "trust bundles"
	MeshRoots    Publisher = "the mesh"
)

// exit is how long a place can delay a new root. Who owns its objects, or keeps its API server from
// being reached, does not decide about the roots of all others.
const exit = time.Hour

// turns is how often a place can take the same roots back. One that has and lacks them by turns would
// delay a new root without end.
const turns = 3

// settling is how long a new leader records nothing, as it does not know yet what places have, and how
// long a place lacks roots before that is recorded.
const settling = time.Minute

// Place is where one Publisher writes an authority's roots.
type Place struct {
	Authority, Cluster string
	By                 Publisher
}

// Key identifies a place among those of its authority, in a [Record] as well.
func (p Place) Key() string { return p.Cluster + "/" + string(p.By) }

// Record is the engine, as far as places are concerned.
type Record interface {
	RootsWritten(authority string, roots *pki.Bundle)
	Roots(authority string) *pki.Bundle
	Lacking(authority string) map[string]time.Time
	SetLacking(authority string, since map[string]time.Time)
}

// Quorum gathers where roots are published. A root counts as published when all places have it: a
// cluster that is away delays new roots, as its pods verify the others', but for [exit] only. A root
// counts no longer once a place is known to lack it: it was removed there, or the cluster is new. What
// a cluster that cannot be reached has now is not known, and changes nothing.
type Quorum struct {
	record     Record // of what all places should have, and do; it does not block
	publishers func(authority string) []Publisher
	began      time.Time

	order sync.Mutex // held during the call, so that the last call has the current roots

	mu      sync.Mutex
	ids     []string // of all clusters
	have    map[Place]*pki.Bundle
	lacking map[Place]lack
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

// New begins with what a record has of the places that were lacking under a former leader.
func New(record Record, publishers func(string) []Publisher) *Quorum {
	return &Quorum{
		record: record, publishers: publishers, began: time.Now(),
		have: map[Place]*pki.Bundle{}, lacking: map[Place]lack{}, told: map[string]answer{},
	}
}

// Hook returns the function that receives what a Publisher has written in a cluster.
func (q *Quorum) Hook(cluster string, by Publisher) func(authority string, roots *pki.Bundle) {
	return func(authority string, roots *pki.Bundle) {
		q.change(func() { q.have[Place{authority, cluster, by}] = roots })
	}
}

// Forget drops what is known of a cluster that is reached in another way now.
func (q *Quorum) Forget(cluster string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.have, func(p Place, _ *pki.Bundle) bool { return p.Cluster == cluster })
}

// Members sets which clusters there are, and looks at how long roots have been lacking.
func (q *Quorum) Members(ids []string) {
	q.change(func() {
		q.ids = ids
		maps.DeleteFunc(q.lacking, func(p Place, _ lack) bool { return !slices.Contains(ids, p.Cluster) })
	})
}

// change publishes the roots that are everywhere after a change, if they are others than before.
func (q *Quorum) change(change func()) {
	q.order.Lock()
	defer q.order.Unlock()
	q.mu.Lock()
	change()
	now, changed, late := time.Now(), map[string]*pki.Bundle{}, map[string]map[string]time.Time{}
	for authority := range q.authorities() {
		q.look(authority, now)
		if q.Settled() {
			late[authority] = q.late(authority, now)
		}
		next, last := answer{q.common(authority, now), q.record.Roots(authority)}, q.told[authority]
		if next.common != nil && (last.common == nil || !next.common.Equal(last.common) || !next.wanted.Equal(last.wanted)) {
			q.told[authority], changed[authority] = next, next.common
		}
	}
	q.mu.Unlock()
	for authority, since := range late {
		q.record.SetLacking(authority, since)
	}
	for authority, roots := range changed {
		q.record.RootsWritten(authority, roots)
	}
}

// authorities are those of which anything was written. The lock is held.
func (q *Quorum) authorities() map[string]bool {
	all := map[string]bool{}
	for p := range q.have {
		all[p.Authority] = true
	}
	return all
}

// places are those of an authority. The lock is held.
func (q *Quorum) places(authority string) (all []Place) {
	for _, id := range q.ids {
		for _, by := range q.publishers(authority) {
			all = append(all, Place{authority, id, by})
		}
	}
	return all
}

// Settled reports whether it has had the time to learn what places have.
func (q *Quorum) Settled() bool { return time.Since(q.began) >= settling }

// Waited reports whether it is as old as any place can delay a root.
func (q *Quorum) Waited() bool { return time.Since(q.began) >= exit }

// look notes which places lack a root. The lock is held.
func (q *Quorum) look(authority string, now time.Time) {
	wanted, before := q.record.Roots(authority), q.record.Lacking(authority)
	for _, p := range q.places(authority) {
		l := q.lacking[p]
		if l.since.IsZero() && !l.wanted.Equal(wanted) {
			l = lack{wanted: wanted}
		}
		switch has, known := q.have[p]; {
		case wanted.Filter(has.Contains).Len() == wanted.Len():
			l.since = time.Time{}
		case l.since.IsZero():
			if l.since = now; known { // a cluster that is reached anew does not count
				l.times++
			}
			if since := before[p.Key()]; !since.IsZero() && since.Before(now) { // under a former leader
				l.since = since
			}
		}
		q.lacking[p] = l
	}
}

// late returns since when places lack roots, if it is not brief. The lock is held.
func (q *Quorum) late(authority string, now time.Time) map[string]time.Time {
	since := map[string]time.Time{}
	for _, p := range q.places(authority) {
		if l := q.lacking[p]; !l.since.IsZero() && now.Sub(l.since) >= settling {
			since[p.Key()] = l.since.UTC().Truncate(time.Second)
		}
	}
	return since
}

// Left returns the places that no root waits for any more.
func (q *Quorum) Left() (all []Place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for p, l := range q.lacking {
		if l.long(now) {
			all = append(all, p)
		}
	}
	return all
}

// LeftIn names those of a cluster.
func (q *Quorum) LeftIn(cluster string) (all []string) {
	for _, p := range q.Left() {
		if p.Cluster == cluster {
			all = append(all, fmt.Sprintf("roots of %s in %s", p.Authority, p.By))
		}
	}
	slices.Sort(all)
	return all
}

// IsLeft reports whether no root waits for a place any more.
func (q *Quorum) IsLeft(p Place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lacking[p].long(time.Now())
}

// long reports whether a place has lacked roots for so long that none waits for it any more.
func (l lack) long(now time.Time) bool { return !l.since.IsZero() && now.Sub(l.since) >= exit }

// ignored reports whether what a place has does not count. The first time that it lacks roots, they are
// new. The lock is held.
func (q *Quorum) ignored(p Place, now time.Time) bool {
	l := q.lacking[p]
	return l.long(now) || !l.since.IsZero() && l.times > turns+1
}

// common returns the roots that all places have, apart from those that no root waits for; nil, if that
// is not known. The lock is held.
func (q *Quorum) common(authority string, now time.Time) (common *pki.Bundle) {
	for _, p := range q.places(authority) {
		if q.ignored(p, now) {
			continue
		}
		roots, known := q.have[p]
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
