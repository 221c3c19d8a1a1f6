package meshroots

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// shortest and longest bound the pauses between repairs in one namespace: they double
	// as long as it goes on.
	shortest, longest = time.Second, 10 * time.Minute
	// retries bound the pauses after faults in the same way.
	retries = time.Minute
	// lag is how far the watch may be behind our own writes.
	lag = 5 * time.Second
	// peace is how long nobody must touch a ConfigMap for repairs to be quick again.
	peace = 2 * longest
	// quarrel is how many repairs without peace are another writer's doing, and not a
	// mistake of somebody's.
	quarrel = 5
)

var (
	errNotWritten = errors.New("not written yet")
	errForeign    = fmt.Errorf("a ConfigMap is there and not ours: stop what writes it, and delete it, hand it over with the label %s=%s, or allow its adoption", ManagedBy, Manager)
)

// place is a namespace that is chosen.
type place struct {
	has *want // what its ConfigMap was last seen or written with; nil: something else
	due *want // what it had or was given before: to write that again is a repair
	uid types.UID
	err error // why it lacks what it should have

	last   time.Time     // when it was written to
	over   *seen         // what that replaced
	unseen bool          // the watch has not shown what was written
	pause  time.Duration // after a fault

	repairs  int // without peace
	repaired time.Time
	disputed bool
}

// until returns when the next repair may be.
func (p *place) until() time.Time {
	if p.repairs == 0 {
		return time.Time{}
	}
	return p.repaired.Add(min(longest, shortest<<min(p.repairs-1, 20)))
}

// behind reports whether the watch still shows what our last write replaced.
func (p *place) behind(found *seen, now time.Time) bool {
	if p.unseen = p.unseen && found == p.over && now.Sub(p.last) < lag; !p.unseen {
		p.over = nil
	}
	return p.unseen
}

// owned reports whether a ConfigMap is ours to change. One that we have written is, whatever
// became of its labels.
func (p *place) owned(found *seen) bool {
	return found.ours || p.uid != "" && p.uid == found.UID
}

// set records what a place has. The lock is held.
func (k *Keeper) set(p *place, has *want) {
	k.right += k.counts(has) - k.counts(p.has)
	if p.has = has; has != nil {
		p.due, p.err, p.pause = has, nil, 0
	}
}

func (k *Keeper) counts(has *want) int {
	if has != nil && has == k.want {
		return 1
	}
	return 0
}

// visit returns the place of a namespace, which may be new. The lock is held.
func (k *Keeper) visit(namespace string) *place {
	p := k.places[namespace]
	if p == nil {
		p = &place{}
		k.places[namespace] = p
	}
	return p
}

// leave forgets a namespace that is gone, or not chosen any more. Its ConfigMap stays: pods may
// still need it. The lock is held.
func (k *Keeper) leave(namespace string) {
	if p := k.places[namespace]; p != nil {
		k.set(p, nil)
		k.settle(p)
		delete(k.places, namespace)
	}
}

// confirm tells once that all namespaces have what they should. The lock must not be held.
func (k *Keeper) confirm() {
	k.telling.Lock() // the last word is the newest
	defer k.telling.Unlock()
	k.mu.Lock()
	all := k.listed && k.want != nil && k.told != k.want && k.right == len(k.places)
	if all {
		k.told = k.want
	}
	told := k.told
	k.mu.Unlock()
	if all {
		k.cfg.Log.Info("all namespaces of the mesh have the roots", "authority", k.cfg.Authority, "fingerprints", told.roots.Fingerprints())
		k.cfg.Written(k.cfg.Authority, told.roots)
	}
}

// takeBack tells that namespaces have other roots: a root that waits to be everywhere waits anew.
func (k *Keeper) takeBack() {
	k.telling.Lock()
	defer k.telling.Unlock()
	k.mu.Lock()
	k.told = nil
	k.mu.Unlock()
	k.cfg.Written(k.cfg.Authority, pki.NewBundle())
}
