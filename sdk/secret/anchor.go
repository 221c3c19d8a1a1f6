package secret

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Anchor returns a function for [Spec.Anchor]. The function returns the roots that source
// currently holds as the trust bundle name, or nil if it holds none. It is safe for
// concurrent use.
func Anchor(source Source, name string) func() *pki.Bundle {
	var mu sync.Mutex
	var version string
	var roots *pki.Bundle
	return func() *pki.Bundle {
		item, err := source.Peek(Caller{}, name)
		if err != nil {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if item.Version != version {
			certs, err := pki.ParseCertificates(item.Roots)
			if err != nil {
				return nil
			}
			version, roots = item.Version, pki.NewBundle(certs...)
		}
		return roots
	}
}

// anchored records whether the held certificate chains to the anchor.
type anchored struct {
	seen *pki.Bundle // the anchor at the last check
	lost bool
}

// checkAnchor rechecks the held certificate whenever its anchor has changed. A certificate
// that no longer chains to it is replaced at once, as peers can no longer verify it; the
// agent serves it until then.
func (l *leaf) checkAnchor(now time.Time) {
	if l.spec.Anchor == nil || l.held == nil {
		return
	}
	roots := l.spec.Anchor()
	if roots.Len() == 0 || roots == l.anchor.seen {
		return
	}
	l.anchor = anchored{roots, rootOf(l.held, roots, now) == nil}
	if !l.anchor.lost && !l.roots.lost {
		l.rotation.RootFound()
	}
	if l.anchor.lost {
		l.rotation.RootLoss(rotation.Now(now), 0)
		l.log.Warn("certificate does not chain to the roots its peers verify with, replacing it", "root", pki.Fingerprint(l.held.Root))
	}
}

// checkAnchor verifies a reply against the roots that peers verify with.
func (a *attempt) checkAnchor(c pki.Check, chain []byte) error {
	if a.spec.Anchor == nil {
		return nil
	}
	c.Roots = a.spec.Anchor()
	if _, err := c.Chain(chain); err != nil {
		return &pki.CheckError{Check: "anchor", Detail: "the chain does not lead to the roots that peers of this secret verify with"}
	}
	return nil
}
