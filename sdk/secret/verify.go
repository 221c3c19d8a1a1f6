package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// verify checks the reply to a request that l sent at asked. It checks against exactly the
// roots that will be served with the certificate, and serves them before it returns.
func (a *authority) verify(ctx context.Context, l *leaf, reply ca.Certificate, asked time.Time, check checkFunc) (*pki.Chain, error) {
	_, chain, err := a.verifyRoots(ctx, l, reply, asked, check)
	return chain, err
}

// verifyRoots is verify that also returns the roots in the reply.
func (a *authority) verifyRoots(ctx context.Context, l *leaf, reply ca.Certificate, asked time.Time, check checkFunc) (given *pki.Bundle, chain *pki.Chain, err error) {
	if given, err = a.given(ctx, reply.Roots); err != nil {
		return nil, nil, err
	}
	if chain, err = check(reply.Chain, a.preview(given, asked)); err != nil {
		a.refresh() // the authority may have new roots it has not published yet
		return nil, nil, err
	}
	a.do(func() {
		if ctx.Err() != nil {
			return // superseded: nobody will hold this certificate
		}
		a.ends.set(l, chain.Ends)
		a.roots.reply(given, asked, a.keptUntil)
	})
	return given, chain, nil
}

// checkFunc verifies a chain (PEM) against roots.
type checkFunc func(chain []byte, roots *pki.Bundle) (*pki.Chain, error)

// given returns the admitted roots of a reply. If the reply has none, the authority
// publishes its roots separately, and given waits for them.
func (a *authority) given(ctx context.Context, roots []byte) (*pki.Bundle, error) {
	if len(roots) > 0 {
		return a.admit(roots)
	}
	a.waitForRoots(ctx)
	return nil, nil
}

// preview returns the roots to serve if those of a reply are taken.
func (a *authority) preview(given *pki.Bundle, asked time.Time) (roots *pki.Bundle) {
	a.do(func() {
		try := a.roots.clone()
		try.reply(given, asked, func() time.Time {
			// The reply's own certificate will then be held, which keeps its roots.
			return clock.Later(a.keptUntil(), a.now().Add(a.ownOverlap()))
		})
		roots = try.served(a.now()).Filter(a.allowed)
	})
	return roots
}

// waitForRoots waits for the first roots of an authority that publishes them separately.
func (a *authority) waitForRoots(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.settings().Timeout)
	defer cancel()
	select {
	case <-a.heard:
	case <-ctx.Done():
	}
}
