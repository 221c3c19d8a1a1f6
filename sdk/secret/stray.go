package secret

import (
	"crypto/x509"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// stray records whether the held certificate still chains to a served root.
type stray struct {
	seen *pki.Bundle // the roots at the last check
	lost bool
	last time.Time // when a certificate was last lost
}

// home resets the check for a newly held certificate: the roots may have changed since it
// was verified.
func (s *stray) home() { s.seen, s.lost = nil, false }

// checkRoots rechecks the held certificate whenever the roots have changed. One that peers
// can no longer verify is replaced at once; any other stays.
func (l *leaf) checkRoots(now time.Time) {
	roots := l.signer().bundle.Load()
	if l.held == nil || roots == l.stray.seen {
		return
	}
	l.stray.seen = roots
	if roots.Contains(l.held.Root) {
		l.stray.lost = false
		return
	}
	root := rootOf(l.held, roots, now)
	if root == nil {
		l.lose()
		return
	}
	l.stray.lost = false
	item := *l.item.Load()
	item.RootFingerprint = pki.Fingerprint(root)
	held := *l.held
	held.Root = root
	l.held = &held
	l.item.Store(&item) // same content, so no notification
}

// rootOf returns the root that the chain now leads to, or nil. This is about the roots, so
// a clock that was set back must not affect the answer.
func rootOf(chain *pki.Chain, roots *pki.Bundle, now time.Time) *x509.Certificate {
	check := pki.Check{
		Key: chain.Leaf.PublicKey, Names: pki.AnyName, Roots: roots, Now: clock.Later(now, chain.Leaf.NotBefore),
	}
	again, err := check.Chain(chain.PEM)
	if err != nil {
		return nil
	}
	return again.Root
}

var errStray = ca.Errorf(ca.Aborted, "the roots of the authority change so often that certificates do not last")

// lose replaces the certificate: at once, or with backoff if it happens repeatedly, as
// with an authority whose replicas disagree on its roots.
func (l *leaf) lose() {
	now := l.now()
	again := !l.stray.lost && !l.stray.last.IsZero() && time.Since(l.stray.last) < calm
	if again && l.pause.over(now) {
		wait := l.retry.wait(0, 0)
		l.pause = newPause(wait, now)
		l.failure = newFailure(errStray, now, wait)
	}
	l.stray.lost, l.stray.last = true, time.Now()
	l.log.Warn("certificate no longer chains to its authority's roots, replacing it", "authority", l.signer().Name, "root", pki.Fingerprint(l.held.Root))
}
