package signing

import (
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/countersign-dev/countersign/internal/text"
)

// Shut is the state of a signer for whose requests no certificates are requested, as they could not be
// written.
type Shut struct {
	Signer string
	// Owners are the affected owners. Empty: all.
	Owners []string
	Since  time.Time
	// Next is when one may try again, which costs a certificate.
	Next time.Time
	// Error is why the last write failed. Forbidden means that our account lacks a right.
	Error     string
	Forbidden bool
}

// Gates are the gates of signers, by their names.
type Gates map[string]*Gate

// Shut returns the state of the gates that are shut.
func (g Gates) Shut() (all []Shut) {
	for _, signer := range slices.Sorted(maps.Keys(g)) {
		if s, is := g[signer].state(); is {
			s.Signer = signer
			all = append(all, s)
		}
	}
	return all
}

// state reports whether the gate is shut for any owner, and its state.
func (g *Gate) state() (s Shut, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s = Shut{Error: g.fault, Forbidden: g.forbidden}
	shut := g.shut
	if all, is := g.shut[everyone]; is {
		shut = map[string]trial{everyone: all}
	}
	for _, owner := range slices.Sorted(maps.Keys(shut)) {
		t := shut[owner]
		if s.Since.IsZero() || t.since.Before(s.Since) {
			s.Since = t.since
		}
		if s.Next.IsZero() || t.next.Before(s.Next) {
			s.Next = t.next
		}
		if owner != everyone {
			s.Owners = append(s.Owners, text.Clean(owner))
		}
	}
	return s, len(shut) > 0
}

// note remembers why a write failed. The lock is held.
func (g *Gate) note(err error) {
	g.fault, g.forbidden = text.Clean(err.Error()), apierrors.IsForbidden(err)
}
