package secret

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// issued is about the certificates that a [Signer] obtains. Any goroutine uses it.
type issued struct {
	standIn     *leaf                      // stands for all of them
	issuedUntil atomic.Int64               // the latest NotAfter, in nanoseconds of Unix time
	lastReply   atomic.Pointer[replied]    // the roots of the last reply
	adopted     atomic.Pointer[pki.Bundle] // the reply roots now in roots
}

// replied caches the parsed roots of a reply, as thousands of replies bring the same.
type replied struct {
	pem      []byte
	roots    *pki.Bundle
	unusable []error
}

// parse is parseRoots, which verifies a signature for each root, unless it parsed the same
// before.
func (a *authority) parse(pemBytes []byte) (roots *pki.Bundle, unusable []error, err error) {
	if last := a.parsed.Load(); last != nil && bytes.Equal(last.pem, pemBytes) {
		return last.roots, last.unusable, nil
	}
	if roots, unusable, err = parseRoots(pemBytes); err == nil {
		a.parsed.Store(&replied{bytes.Clone(pemBytes), roots, unusable})
	}
	return roots, unusable, err
}

// verifyFast verifies a reply to a [Signer]'s order. If the reply brings no new roots, verifyFast
// checks it right away, without the authority's goroutine and without parsing the roots
// again: thousands of replies of a rotation bring the same.
func (a *authority) verifyFast(ctx context.Context, at *attempt, reply ca.Certificate, asked time.Time) (*pki.Chain, error) {
	if !a.nothingNew(reply.Roots) {
		given, chain, err := a.verifyRoots(ctx, at, reply, asked)
		if err == nil && given != nil {
			a.lastReply.Store(&replied{pem: bytes.Clone(reply.Roots), roots: given})
		}
		return chain, err
	}
	chain, err := at.check(reply.Chain, a.bundle.Load())
	switch {
	case err != nil:
		a.refresh() // the authority may have new roots it has not published yet
	case !a.inForce(at.conf):
		return nil, a.superseded()
	}
	return chain, err
}

// nothingNew reports whether taking a reply's roots would change nothing.
func (a *authority) nothingNew(roots []byte) bool {
	if a.bundle.Load().Len() == 0 {
		return false
	}
	if len(roots) == 0 {
		select {
		case <-a.feed.heard: // it publishes its roots itself, and has done so
			return true
		default:
			return false
		}
	}
	last := a.lastReply.Load()
	return last != nil && last.roots == a.adopted.Load() && bytes.Equal(last.pem, roots)
}

// recordIssued records a certificate issued through a [Signer]: its roots stay until then.
func (a *authority) recordIssued(until time.Time) {
	for {
		old := a.issuedUntil.Load()
		if until.UnixNano() <= old || a.issuedUntil.CompareAndSwap(old, until.UnixNano()) {
			return
		}
	}
}
