package secret

import (
	"bytes"
	"context"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// replied is the roots of a reply, read once: thousands of replies bring the same.
type replied struct {
	pem   []byte
	roots *pki.Bundle
}

// vouch verifies a reply to the order of a [Signer]. Where it brings no root that is not
// served already it is checked at once, without the authority's goroutine and without
// reading the roots again: thousands of replies of a rotation say the same.
func (a *authority) vouch(ctx context.Context, reply ca.Certificate, asked time.Time, check checkFunc) (*pki.Chain, error) {
	if !a.nothingNew(reply.Roots) {
		given, chain, err := a.verifyRoots(ctx, a.lent, reply, asked, check)
		if err == nil && given != nil {
			a.last.Store(&replied{bytes.Clone(reply.Roots), given})
		}
		return chain, err
	}
	chain, err := check(reply.Chain, a.bundle.Load())
	if err != nil {
		a.refresh() // the authority may have new roots that it has not told yet
	}
	return chain, err
}

// nothingNew tells whether to take these roots of a reply would change nothing.
func (a *authority) nothingNew(roots []byte) bool {
	if a.bundle.Load().Len() == 0 {
		return false
	}
	if len(roots) == 0 {
		select {
		case <-a.heard: // it tells its roots itself, and has
			return true
		default:
			return false
		}
	}
	last := a.last.Load()
	return last != nil && last.roots == a.taken.Load() && bytes.Equal(last.pem, roots)
}

// lend notes that a certificate was signed that lives until then: its roots are kept
// as long.
func (a *authority) lend(until time.Time) {
	for {
		old := a.lentUntil.Load()
		if until.UnixNano() <= old || a.lentUntil.CompareAndSwap(old, until.UnixNano()) {
			return
		}
	}
}
