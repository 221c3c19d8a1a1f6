package secret

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// trustBundle is one TrustBundle secret: the union of its authorities' roots. It is served
// once the roots of one authority are known, and grows as others arrive.
type trustBundle struct {
	*slot
	spec    Spec
	sources []*authority
	now     func() time.Time
	observe func(Event)

	mu      sync.Mutex // serializes refreshes by several authorities
	expired bool       // the expiry was reported
	changes atomic.Int64
}

// refresh serves the authorities' current roots. It holds its lock only over the engine's
// own code.
func (b *trustBundle) refresh() {
	changed, expired := b.update()
	if changed {
		b.notify()
	}
	if expired {
		b.observe(Event{Type: Expired, Secret: b.spec.Name, Authority: b.authorities(), NotAfter: b.item.Load().NotAfter})
	}
}

func (b *trustBundle) update() (changed, expired bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := make([]*pki.Bundle, len(b.sources))
	for i, a := range b.sources {
		parts[i] = a.bundle.Load()
	}
	roots := merge(parts)
	held := b.item.Load()
	if roots.Len() > 0 && (held == nil || held.Version != bundleVersion(roots)) {
		b.item.Store(b.itemOf(roots))
		b.changes.Add(1)
		b.expired = false
		return true, false
	}
	if held == nil || b.expired || !held.Expired(b.now()) {
		return false, false
	}
	b.expired = true
	return false, true
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

func (b *trustBundle) authorities() string { return strings.Join(b.spec.Authorities, ", ") }

func (b *trustBundle) status() Status {
	s := statusOf(b.spec, b.item.Load(), b.now())
	s.Rotations = int(b.changes.Load())
	s.Roots = b.roots()
	for _, a := range b.sources {
		if f := a.failure.Load(); f != nil {
			s.Failure = f
		}
	}
	return s
}

func bundleVersion(roots *pki.Bundle) string { return version.Of(roots.PEM()) }

// nudge does nothing: a bundle is never released.
func (b *trustBundle) nudge() {}
