package googleca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var errNoRoots = ca.Errorf(ca.Unimplemented, "Mesh CA returns its roots with each certificate only")

// Roots implements [ca.RootSource]. It returns the current roots of the pool, in PEM. With
// Mesh CA, which returns its roots with each certificate only, it is [ca.ErrUnimplemented].
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	if c.mesh != nil {
		return nil, errNoRoots
	}
	token, _ := c.pool.asking()
	if c.waits(token) {
		return nil, ca.Errorf(ca.Unavailable, "%s: fetching the roots needs the token of a request, and there was none yet", c.name)
	}
	roots, err := c.fetch(ctx, token)
	return roots.PEM(), err
}

// WatchRoots implements [ca.RootWatcher]. It reports the current roots of the pool, and each
// change that it finds at the interval or when a reply chains to an unknown root. With the
// credentials [Token] it uses the token of the newest request, and waits for the first. It
// returns the first error.
func (c *CA) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	if c.mesh != nil {
		return errNoRoots
	}
	var told *pki.Bundle
	for ctx.Err() == nil {
		token, asked := c.pool.asking()
		if c.waits(token) {
			wait(ctx, asked, nil)
			continue
		}
		roots, err := c.fetch(ctx, token)
		switch {
		case errors.Is(err, ca.ErrUnauthenticated) && token != "":
			c.settings.Log.Warn("the token of the last request is no longer accepted, waiting for the next to fetch the roots", "ca_pool", c.name)
			c.pool.forget(token)
			continue
		case err != nil:
			return err
		case !roots.Equal(told):
			if err := changed(roots.PEM()); err != nil {
				return err
			}
			told = roots
		}
		interval := c.pool.interval - c.pool.interval/10
		wait(ctx, asked, time.After(interval+rand.N(c.pool.interval/5)))
	}
	return ctx.Err()
}

func wait(ctx context.Context, asked <-chan struct{}, over <-chan time.Time) {
	select {
	case <-asked:
	case <-over:
	case <-ctx.Done():
	}
}

// waits reports whether there is no token yet to fetch the roots with.
func (c *CA) waits(token ca.Token) bool { return token == "" && c.settings.Credentials == Token }

// fetch returns the pool's roots: the last certificate of each CA's chain.
func (c *CA) fetch(ctx context.Context, token ca.Token) (*pki.Bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := c.pool.client.FetchCaCerts(ctx, &privatecapb.FetchCaCertsRequest{CaPool: c.name}, c.pool.callOptions(token))
	if err != nil {
		return nil, c.failure(ctx, err, token)
	}
	roots, err := c.rootsOf(reply)
	if err != nil {
		return nil, err
	}
	c.pool.know(roots)
	return roots, nil
}

func (c *CA) rootsOf(reply *privatecapb.FetchCaCertsResponse) (*pki.Bundle, error) {
	var roots *pki.Bundle
	for i, chain := range reply.GetCaCerts() {
		if len(chain.GetCertificates()) == 0 {
			continue
		}
		texts := chain.GetCertificates()
		certs, unusable, err := pki.UsableCertificates([]byte(texts[len(texts)-1]))
		switch {
		case err != nil && (len(unusable) == 0 || errors.Is(err, pki.ErrMalformed)):
			return nil, ca.Errorf(ca.Internal, "%s: the last certificate of CA chain %d: %w", c.name, i+1, err)
		case err != nil: // the roots of the pool's other CAs must arrive
			c.settings.Log.Warn("ignoring a CA whose root cannot be used", "ca_pool", c.name, "chain", i+1, "error", err)
			continue
		}
		last := certs[len(certs)-1]
		root := rootOf(last)
		if root.Len() == 0 {
			// A CA under an external root that the service does not have.
			c.settings.Log.Warn("ignoring a CA whose chain ends in no root", "ca_pool", c.name, "subject", fmt.Sprintf("%.256s", last.Subject), "fingerprint", pki.Fingerprint(last))
		}
		roots = roots.Union(root)
	}
	if roots.Len() == 0 {
		return nil, ca.Errorf(ca.Invalid, "%s: the pool has no CA with a root", c.name)
	}
	return roots, nil
}

// rootState is what signing and watching share. It is safe for concurrent use.
type rootState struct {
	mu     sync.Mutex
	known  *pki.Bundle
	newest ca.Token      // of the requests, with the credentials Token; in memory only
	ask    chan struct{} // closed and replaced when the roots should be fetched now
}

func newRootState() rootState { return rootState{ask: make(chan struct{})} }

// asking returns the token to fetch the roots with, and a channel that is closed when to fetch
// them again.
func (r *rootState) asking() (ca.Token, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest, r.ask
}

func (r *rootState) know(roots *pki.Bundle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = roots
}

// came keeps the token of a request, and wakes the watches if it is the first.
func (r *rootState) came(token ca.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest == "" {
		r.wake()
	}
	r.newest = token
}

// forget drops a token that was not accepted, unless there is a newer one.
func (r *rootState) forget(token ca.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest == token {
		r.newest = ""
	}
}

// met wakes the watches if a chain ended in an unknown root: peers have certificates under it,
// too, or soon will.
func (r *rootState) met(root *x509.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known.Contains(root) {
		r.wake()
	}
}

func (r *rootState) wake() {
	close(r.ask)
	r.ask = make(chan struct{})
}
