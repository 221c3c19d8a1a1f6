package secret

import (
	"crypto/x509"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// stray remembers whether the certificate held still leads to a root that is
// served.
type stray struct {
	seen *pki.Bundle // the roots it was last held against
	lost bool
	last time.Time // when one was last lost
}

// home says that another certificate is held. The roots may have changed since it
// was verified, so they are looked at again.
func (s *stray) home() { s.seen, s.lost = nil, false }

// checkRoots looks at the certificate held whenever the roots have changed. One
// that peers can no longer verify is replaced at once; one that they can is left
// alone.
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
	l.item.Store(&item) // the content is the same: nobody is told
}

// rootOf returns the one of the roots that the chain now leads to, or nil. The
// question is the roots, so a clock that was set back must not spoil the answer.
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

// lose has the certificate replaced: at once, but with a backoff where it happens
// again and again, as with an authority whose replicas disagree on its roots.
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
