package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// verify checks the reply to a request that was sent at asked. It checks against exactly the
// roots that will be served with the certificate, and serves them before it returns.
func (a *authority) verify(ctx context.Context, at *attempt, reply ca.Certificate, asked time.Time) (*pki.Chain, error) {
	_, chain, err := a.verifyRoots(ctx, at, reply, asked)
	return chain, err
}

// verifyRoots is verify that also returns the roots in the reply.
func (a *authority) verifyRoots(ctx context.Context, at *attempt, reply ca.Certificate, asked time.Time) (given *pki.Bundle, chain *pki.Chain, err error) {
	if given, err = a.given(ctx, at.conf, reply.Roots); err != nil {
		return nil, nil, err
	}
	if chain, err = at.check(reply.Chain, a.preview(given, asked)); err != nil {
		a.refresh() // the authority may have new roots it has not published yet
		return nil, nil, err
	}
	a.besideChain.info(a.log, "certificates of the reply left out: the verified path needs none of them", chain.LeftOut)
	taken := false
	a.do(func() {
		if taken = a.inForce(at.conf); !taken || ctx.Err() != nil {
			return // superseded: nobody will hold this certificate
		}
		a.ends.set(at.leaf, chain.Ends)
		a.roots.reply(given, asked, a.keptUntil)
	})
	if !taken && a.ctx.Err() == nil {
		return nil, nil, a.superseded()
	}
	return given, chain, nil
}

// inForce reports whether a reply to a request with these settings may still be taken.
func (a *authority) inForce(conf *Authority) bool {
	is := a.settings()
	return is == conf || is.answersAs(conf)
}

// superseded is the error for the reply of a client, or under rules, that are not in force any
// more.
func (a *authority) superseded() error {
	return ca.Errorf(ca.Aborted, "authority %q has other settings since the request", a.Name)
}

// given returns the admitted roots of a reply. If the reply has none, the authority
// publishes its roots separately, and given waits for them.
func (a *authority) given(ctx context.Context, conf *Authority, roots []byte) (*pki.Bundle, error) {
	if len(roots) > 0 {
		return a.admit(conf, roots)
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
		roots = try.served(rotation.Now(a.now())).Filter(a.allowed)
	})
	return roots
}

// waitForRoots waits for the first roots of an authority that publishes them separately.
func (a *authority) waitForRoots(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.settings().Timeout)
	defer cancel()
	select {
	case <-a.feed.heard:
	case <-ctx.Done():
	}
}
