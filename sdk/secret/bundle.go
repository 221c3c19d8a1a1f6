package secret

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// trustBundle is one TrustBundle secret: the union of its authorities' roots. It is served
// once the roots of one authority are known, and grows as others arrive.
type trustBundle struct {
	*slot
	*engine

	mu sync.Mutex // serializes refreshes by several authorities
	bound
	parts   []*pki.Bundle // of the sources, of which made was made
	made    *Item
	expired bool // the expiry was reported
	ended   bool // the name may be another secret's
	changes atomic.Int64
}

func newTrustBundle(m *Manager, spec Spec, sources []*authority) *trustBundle {
	return &trustBundle{
		slot: m.places.of(spec.Name), engine: &m.engine, bound: bound{spec, sources},
	}
}

// bind makes it what is configured now.
func (b *trustBundle) bind(is bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bound = is
}

// from returns the authorities whose roots it has.
func (b *trustBundle) from() []*authority { return b.is().sources }

func (b *trustBundle) is() bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bound
}

// end makes later refreshes do nothing.
func (b *trustBundle) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// refresh serves the authorities' current roots. It holds its lock only over the engine's
// own code.
func (b *trustBundle) refresh() {
	changed, expired := b.update()
	if changed {
		b.notify()
	}
	if expired {
		b.observe(Event{Kind: Expired, Secret: b.name, Authority: b.is().authorities(), NotAfter: b.item.Load().NotAfter})
	}
}

func (b *trustBundle) update() (changed, expired bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false, false
	}
	parts := make([]*pki.Bundle, len(b.sources))
	for i, a := range b.sources {
		parts[i] = a.valid()
	}
	held := b.item.Load()
	if held == nil || held != b.made || !slices.EqualFunc(parts, b.parts, (*pki.Bundle).Equal) {
		if b.remake(parts, held) {
			return true, false
		}
	}
	if held == nil || b.expired || !held.Expired(b.now()) {
		return false, false
	}
	b.expired = true
	return false, true
}

// remake serves the roots of the sources, and reports whether they differ from what is held.
func (b *trustBundle) remake(parts []*pki.Bundle, held *Item) bool {
	roots := merge(parts) // empty if all have expired: the last set is served on
	changed := roots.Len() > 0 && (held == nil || held.Version != bundleVersion(roots))
	if changed {
		held = b.itemOf(roots)
		b.item.Store(held)
		b.changes.Add(1)
		b.expired = false
	}
	b.parts, b.made = parts, held
	return changed
}

func (b *trustBundle) itemOf(roots *pki.Bundle) *Item {
	item := NewTrustBundle(b.spec.Name, b.authorities(), roots)
	item.Issued = b.now()
	return item
}

// NewTrustBundle returns the item of a trust bundle with the roots of one or more
// authorities.
func NewTrustBundle(name, authority string, roots *pki.Bundle) *Item {
	item := &Item{
		Name: name, Kind: TrustBundle, Version: bundleVersion(roots), Authority: authority,
		Roots: roots.PEM(), RootFingerprints: slices.Sorted(slices.Values(roots.Fingerprints())),
	}
	for i, cert := range roots.Certificates() {
		if i == 0 || cert.NotBefore.Before(item.NotBefore) {
			item.NotBefore = cert.NotBefore
		}
		item.NotAfter = clock.Later(item.NotAfter, cert.NotAfter)
	}
	return item
}

func (b bound) authorities() string { return strings.Join(b.spec.Authorities, ", ") }

func (b *trustBundle) status() Status {
	is := b.is()
	s := statusOf(is.spec, b.item.Load(), b.now())
	s.Rotations = int(b.changes.Load())
	s.Roots = is.roots()
	for _, a := range is.sources {
		if f := a.feed.failure.Load(); f != nil && !a.over() {
			s.Failure = f
		}
	}
	s.Missing = is.missing()
	return s
}

// missing names the authorities that have no roots to serve; empty if all have.
func (b bound) missing() string {
	var without, mute []string
	for _, name := range b.spec.Authorities {
		i := slices.IndexFunc(b.sources, func(a *authority) bool { return a.Name == name })
		if a := b.sources[i]; a.valid().Len() == 0 {
			without = append(without, name)
			if a.feed.mute.Load() {
				mute = append(mute, name)
			}
		}
	}
	switch {
	case len(without) == 0:
		return ""
	case len(mute) > 0:
		return fmt.Sprintf("no servable roots for %q; %q returns its roots only with issued certificates", without, mute)
	}
	return fmt.Sprintf("no servable roots for %q", without)
}

func bundleVersion(roots *pki.Bundle) string { return version.Of(roots.PEM()) }

// nudge does nothing: a bundle is never released.
func (b *trustBundle) nudge() {}
