// Package catest is an in-memory certificate authority for tests: a test creates it
// with [NewCA], makes it fail, hang, delay or answer wrongly with [CA.Next] and
// [CA.Always], and inspects calls with [CA.Requests]. At rest it has no goroutine and
// no timer, so it works in a testing/synctest bubble.
package catest

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const defaultCALifetime = 10 * 365 * 24 * time.Hour

// Options configure a [CA]. The zero value is a root that signs with ECDSA P-256.
type Options struct {
	// Now is the CA's clock. Default: [time.Now].
	Now func() time.Time
	// KeyType is the type of the CA's own keys. Default: ECDSA P-256.
	KeyType pki.KeyType
	// Intermediates is the number of CAs between the root and a leaf. Default: 0.
	Intermediates int
	// CALifetime is the lifetime of the root and the intermediates, starting an hour
	// ago. Default: 10 years.
	CALifetime time.Duration
	// TTL is the lifetime of every leaf, whatever is requested. Default: the requested
	// TTL, or 24 hours.
	TTL time.Duration
	// NamesFromRequest makes it certify the names of a request, as a [ca.NameCertifier] does.
	// Default: those of the CSR.
	NamesFromRequest bool
}

// CA is a [ca.Client], [ca.RootSource] and [ca.RootWatcher] that signs every request
// from any caller. It is safe for concurrent use.
type CA struct {
	opts Options

	mu       sync.Mutex
	issuers  []issuer // root first, the leaf-signing CA last
	roots    *pki.Bundle
	watchers map[chan struct{}]bool
	planned  []Fault
	always   Fault
	requests []ca.SignRequest
}

// NewCA creates a CA with new keys. It panics if the options cannot be satisfied.
func NewCA(opts Options) *CA {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.CALifetime = cmp.Or(opts.CALifetime, defaultCALifetime)
	c := &CA{opts: opts, watchers: map[chan struct{}]bool{}}
	c.Rotate()
	return c
}

// Rotate replaces the root and the intermediates: the new ones sign from now on, only
// the new root is published, and watchers are called.
func (c *CA) Rotate() {
	issuers := make([]issuer, 1, 1+c.opts.Intermediates)
	issuers[0] = newIssuer(c.opts, "root", nil)
	for i := range c.opts.Intermediates {
		issuers = append(issuers, newIssuer(c.opts, fmt.Sprintf("intermediate %d", i+1), &issuers[i]))
	}
	c.mu.Lock()
	c.issuers = issuers
	c.mu.Unlock()
	c.SetRoots(pki.NewBundle(issuers[0].cert))
}

// SetRoots replaces the published roots everywhere and calls watchers. It does not
// change which root signs, so old and new roots can overlap.
func (c *CA) SetRoots(roots *pki.Bundle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = roots
	for watcher := range c.watchers {
		select {
		case watcher <- struct{}{}:
		default: // a notification is already pending
		}
	}
}

// Bundle returns the published roots.
func (c *CA) Bundle() *pki.Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// Requests returns the requests CSRSign has received so far, failed calls included.
func (c *CA) Requests() []ca.SignRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// CSRSign implements [ca.Client]. It signs the names in the CSR, or with
// [Options.NamesFromRequest] those of the request.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	fault := c.begin(req)
	if err := fault.before(ctx); err != nil {
		return ca.Certificate{}, err
	}
	return c.sign(req, fault)
}

// begin records the request and returns the fault planned for it.
func (c *CA) begin(req ca.SignRequest) Fault {
	req.CSR = slices.Clone(req.CSR)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, req)
	if len(c.planned) == 0 {
		return c.always
	}
	fault := c.planned[0]
	c.planned = c.planned[1:]
	return fault
}

func (c *CA) sign(req ca.SignRequest, fault Fault) (ca.Certificate, error) {
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	if c.opts.NamesFromRequest {
		if err := takeNames(csr, req); err != nil {
			return ca.Certificate{}, ca.Errorf(ca.Invalid, "the request: %w", err)
		}
	}
	draft := c.draft(req, csr)
	if fault.Break != nil {
		fault.Break(draft)
	}
	leaf := draft.issuer.issue(draft.Leaf, draft.Key)
	return ca.Certificate{
		Chain: pki.EncodeCertificates(append([]*x509.Certificate{leaf}, draft.Above...)),
		Roots: draft.Roots.PEM(),
	}, nil
}

func (c *CA) draft(req ca.SignRequest, csr *x509.CertificateRequest) *Draft {
	c.mu.Lock()
	issuers, roots := c.issuers, c.roots
	c.mu.Unlock()
	return &Draft{
		Leaf: leafTemplate(csr, c.opts.Now(), c.ttl(req)), Key: csr.PublicKey, Above: upwards(issuers),
		Root: issuers[0].cert, Roots: roots, issuer: issuers[len(issuers)-1],
	}
}

func (c *CA) ttl(req ca.SignRequest) time.Duration {
	switch {
	case c.opts.TTL != 0:
		return c.opts.TTL
	case req.TTL != 0:
		return req.TTL
	}
	return 24 * time.Hour
}

// Roots implements [ca.RootSource].
func (c *CA) Roots(context.Context) ([]byte, error) { return c.Bundle().PEM(), nil }

// WatchRoots implements [ca.RootWatcher]. It returns when ctx ends or changed returns
// an error.
func (c *CA) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	// Created here, not in NewCA: a channel belongs to the synctest bubble that created it.
	told := make(chan struct{}, 1)
	c.mu.Lock()
	c.watchers[told] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, told)
	}()
	for {
		if err := changed(c.Bundle().PEM()); err != nil {
			return err
		}
		select {
		case <-told:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
