package meshroots

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// lag is how far the watch may be behind our own writes.
	lag = 5 * time.Second
	// exit is how long a namespace can delay a new root whose ConfigMap another client keeps
	// changing, or where writing it is refused. It is less than the hour of the whole cluster, whose pods
	// would wait for that namespace.
	exit = time.Hour - 3*every
)

// pace bounds the pauses between writes in one namespace.
var pace = &owned.Rules{
	Faults: rotation.Row{First: time.Second, Most: time.Minute}, Repairs: rotation.Row{First: time.Second, Most: 10 * time.Minute}, Peace: 20 * time.Minute,
}

var errDisputed = errors.New("another client keeps changing or deleting it")

// place is a namespace that is chosen.
type place struct {
	has *want // what its ConfigMap was last seen or written with; nil: something else
	due *want // what it had or was given before: to write that again is a repair
	err error // why it lacks what it should have

	claim owned.Claim
	pace  owned.Pace

	last   time.Time // when it was written to
	over   *seen     // what that replaced
	unseen bool      // the watch has not shown what was written

	disputed bool      // and counted so
	wrong    time.Time // since when others keep it from having what it should; zero: they do not
	left     bool      // that lasted for exit: no root waits for it
}

// behind reports whether the watch still shows what our last write replaced.
func (p *place) behind(found *seen, now time.Time) bool {
	if p.unseen = p.unseen && found == p.over && now.Sub(p.last) < lag; !p.unseen {
		p.over = nil
	}
	return p.unseen
}

// owned reports whether a ConfigMap is ours to change.
func (p *place) owned(found *seen) bool { return p.claim.Owns(found.UID, found.ours) }

// set records what a place has. The lock is held.
func (k *Keeper) set(p *place, has *want) {
	k.count(p, -1)
	if p.has = has; has != nil {
		p.due, p.err = has, nil
		p.pace.Right()
		if !p.pace.Fought() {
			p.wrong, p.left = time.Time{}, false
		}
	}
	k.count(p, 1)
}

// count adds a place to those that have the roots, or to those that no root waits for.
func (k *Keeper) count(p *place, by int) {
	switch {
	case p.has != nil && p.has == k.want:
		k.right += by
	case p.left:
		k.left += by
	}
}

// blame records that others keep a place from having what it should.
func (p *place) blame(now time.Time) {
	if p.wrong.IsZero() {
		p.wrong = now
	}
}

// kept reports whether others keep a place from having what it should. Where the last write had no
// answer, that is not known.
func (p *place) kept(want *want) bool {
	return !p.wrong.IsZero() && p.has != want && (p.err == nil || errors.Is(p.err, owned.ErrForeign) || owned.Refused(p.err))
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
		k.count(p, -1)
		k.settle(p)
		delete(k.places, namespace)
	}
}

// everywhere reports whether all namespaces have the roots, apart from those that no root waits for. If
// none has them, another program writes them all, and the mesh does not have the root. The lock is held.
func (k *Keeper) everywhere() bool {
	return k.listed && k.want != nil && k.right+k.left == len(k.places) && (k.right > 0 || len(k.places) == 0)
}

// confirm reports once that the roots are everywhere. The lock must not be held.
func (k *Keeper) confirm() {
	k.telling.Lock() // the last word is the newest
	defer k.telling.Unlock()
	k.mu.Lock()
	all := k.told != k.want && k.everywhere()
	left := k.left
	if all {
		k.told = k.want
	}
	told := k.told
	k.mu.Unlock()
	if all {
		k.cfg.Log.Info("the namespaces of the mesh have the roots", "authority", k.cfg.Authority, "fingerprints", told.roots.Fingerprints(), "left_behind", left)
		k.cfg.Written(k.cfg.Authority, told.roots)
	}
}

// takeBack reports that namespaces have other roots: a root that waits to be everywhere waits anew.
func (k *Keeper) takeBack() {
	k.telling.Lock()
	defer k.telling.Unlock()
	k.mu.Lock()
	k.told = nil
	k.mu.Unlock()
	k.cfg.Written(k.cfg.Authority, pki.NewBundle())
}
