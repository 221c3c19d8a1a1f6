package secret

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// lossSpread bounds how long a leaf waits whose root the operator no longer pins: a fleet
// gets its new pins at once, and must not ask at once.
const lossSpread = time.Minute

// rootCheck records whether the held certificate still chains to a served root.
type rootCheck struct {
	seen *pki.Bundle // the roots at the last check
	lost bool
	late bool // a reply whose root was unknown was asked for again, as roots have come
}

// checkRoots rechecks the held certificate whenever the roots have changed. One that peers
// can no longer verify is replaced; any other stays.
func (l *leaf) checkRoots(now time.Time) {
	roots := l.signer().bundle.Load()
	if roots == l.roots.seen {
		return
	}
	l.roots.seen = roots
	l.rootsCame(now)
	if l.held == nil {
		return
	}
	if roots.Contains(l.held.Root) {
		l.rootFound()
		return
	}
	root := rootOf(l.held, roots, now)
	if root == nil {
		l.rootLoss(now)
		return
	}
	l.rootFound()
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

// rootLoss replaces the certificate: at once if the authority dropped its root, soon if the
// operator's pins exclude it.
func (l *leaf) rootLoss(now time.Time) {
	var spread time.Duration
	if pins := l.signer().settings().PinnedRoots; pins != nil && !pins.Contains(l.held.Root) {
		spread = min(lossSpread, l.rotation.Left(now)/10)
	}
	l.roots.lost = true
	wait := l.rotation.RootLoss(rotation.Now(now), spread)
	l.log.Warn("certificate no longer chains to its authority's roots, replacing it",
		"authority", l.signer().Name, "root", pki.Fingerprint(l.held.Root), "wait", wait)
}

// rootsCame asks once more at once for what failed for want of a root: some authorities
// sign with a new root before they publish it.
func (l *leaf) rootsCame(now time.Time) {
	if l.failure == nil || l.failure.Reason != "chain" || l.roots.late {
		return
	}
	l.roots.late = true
	l.rotation.RetryIn(rotation.Now(now), 0)
}

func (l *leaf) rootFound() {
	l.roots.lost = false
	if !l.anchor.lost {
		l.rotation.RootFound()
	}
}

// missing says what keeps peers from verifying what is held; empty if nothing does.
func (l *leaf) missing() string {
	switch {
	case l.held == nil:
		return ""
	case l.roots.lost:
		return fmt.Sprintf("root %s of the held certificate is not served any more; its successor is not there yet", pki.Fingerprint(l.held.Root))
	case l.anchor.lost:
		return "the held certificate does not chain to the roots that its peers verify with; its successor is not there yet"
	}
	return ""
}
