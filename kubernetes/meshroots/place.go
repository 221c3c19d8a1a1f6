package meshroots

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// peace is how long a ConfigMap has to stay as it is for repairs to be quick again.
	peace = 2 * longest
	// exit is how long a namespace can delay a new root whose ConfigMap another client keeps
	// changing, or where writing it is refused.
	exit = time.Hour
	// quarrel is how many repairs without peace are another writer's doing, and not one
	// mistake.
	quarrel = 5
)

var (
	errAltered    = errors.New("the API server stored other roots than were written: does an admission webhook change them?")
	errDisputed   = errors.New("another client keeps changing or deleting it")
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

	wrong time.Time // since when others keep it from having what it should; zero: they do not
	left  bool      // that lasted for exit: no root waits for it
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
	k.count(p, -1)
	if p.has = has; has != nil {
		p.due, p.err, p.pause = has, nil, 0
		if p.repairs == 0 {
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

// refused reports whether the API server answered and rejected the write. If it does not answer, the
// namespace is not the reason.
func refused(err error) bool {
	if errors.Is(err, errAltered) {
		return true
	}
	code := int32(0)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = status.Status().Code
	}
	return code >= 400 && code <= 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code != http.StatusUnauthorized
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
