package secret

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Anchor returns, for [Spec.Anchor], what the trust bundle of that name holds at
// the moment: nil where it is not held. The function may be called by any goroutine.
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

// anchored remembers whether the certificate held leads to the anchor.
type anchored struct {
	seen *pki.Bundle // what it was last held against
	lost bool
}

// checkAnchor looks at the certificate held whenever its anchor has changed. One
// that does not lead there is replaced at once, as peers can no longer verify it;
// until then it is served.
func (l *leaf) checkAnchor(now time.Time) {
	if l.spec.Anchor == nil || l.held == nil {
		return
	}
	roots := l.spec.Anchor()
	if roots.Len() == 0 || roots == l.anchor.seen {
		return
	}
	l.anchor = anchored{roots, rootOf(l.held, roots, now) == nil}
	if l.anchor.lost {
		l.log.Warn("certificate does not chain to the roots its peers verify with, replacing it", "root", pki.Fingerprint(l.held.Root))
	}
}

// checkAnchor holds a reply against the roots that peers verify with.
func (a *attempt) checkAnchor(c pki.Check, chain []byte) error {
	if a.leaf.spec.Anchor == nil {
		return nil
	}
	c.Roots = a.leaf.spec.Anchor()
	if _, err := c.Chain(chain); err != nil {
		return &pki.CheckError{Check: "anchor", Detail: "the chain does not lead to the roots that peers of this secret verify with"}
	}
	return nil
}
