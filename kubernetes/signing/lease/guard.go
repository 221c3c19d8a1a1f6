package lease

import (
	"context"
	"io"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Client is a CA that is called only while the Lease is held; at other times calls return
// [ca.Unavailable], and calls in flight end with the term. It has all abilities; those that the
// CA lacks return [ca.ErrUnimplemented]. It is safe for concurrent use if the CA is.
type Client struct {
	lease *Lease
	next  ca.Client
}

var (
	_ ca.Client         = (*Client)(nil)
	_ ca.RootSource     = (*Client)(nil)
	_ ca.RootWatcher    = (*Client)(nil)
	_ ca.TokenExchanger = (*Client)(nil)
	_ ca.NameCertifier  = (*Client)(nil)
	_ ca.RenewalAdvisor = (*Client)(nil)
)

// Client guards a CA.
func (l *Lease) Client(next ca.Client) *Client { return &Client{l, next} }

// CSRSign implements [ca.Client].
func (c *Client) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return guarded(ctx, c.lease, func(ctx context.Context) (ca.Certificate, error) { return c.next.CSRSign(ctx, req) })
}

// Roots implements [ca.RootSource].
func (c *Client) Roots(ctx context.Context) ([]byte, error) {
	source, ok := c.next.(ca.RootSource)
	if !ok {
		return nil, ca.ErrUnimplemented
	}
	return guarded(ctx, c.lease, source.Roots)
}

// WatchRoots implements [ca.RootWatcher].
func (c *Client) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	watcher, ok := c.next.(ca.RootWatcher)
	if !ok {
		return ca.ErrUnimplemented
	}
	_, err := guarded(ctx, c.lease, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, watcher.WatchRoots(ctx, changed)
	})
	return err
}

// ExchangeToken implements [ca.TokenExchanger].
func (c *Client) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	exchanger, ok := c.next.(ca.TokenExchanger)
	if !ok {
		return ca.ExchangedToken{}, ca.ErrUnimplemented
	}
	return guarded(ctx, c.lease, func(ctx context.Context) (ca.ExchangedToken, error) { return exchanger.ExchangeToken(ctx, req) })
}

// RenewalInfo implements [ca.RenewalAdvisor].
func (c *Client) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	advisor, ok := c.next.(ca.RenewalAdvisor)
	if !ok {
		return ca.RenewalInfo{}, ca.ErrUnimplemented
	}
	return guarded(ctx, c.lease, func(ctx context.Context) (ca.RenewalInfo, error) { return advisor.RenewalInfo(ctx, leaf) })
}

// CertifiesNames implements [ca.NameCertifier]. It needs no Lease: a follower checks its
// settings with it, and it signs nothing.
func (c *Client) CertifiesNames(ctx context.Context) error {
	certifier, ok := c.next.(ca.NameCertifier)
	if !ok {
		return ca.ErrUnimplemented
	}
	return certifier.CertifiesNames(ctx)
}

// Close implements [io.Closer]. It needs no Lease.
func (c *Client) Close() error {
	if closer, ok := c.next.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// GuardedIssuer decides nothing while the Lease is not held, as a final refusal may be by a policy
// that another replica has replaced, and refuses what comes then, before it stands in line. The
// CA needs a [Client] nevertheless: what stands in line may be called for later.
type GuardedIssuer struct {
	ra.Issuer
	lease *Lease
}

// Issuer guards an engine.
func (l *Lease) Issuer(next ra.Issuer) *GuardedIssuer { return &GuardedIssuer{next, l} }

// Prepare calls the engine if the Lease is held. The error is else a [ca.Unavailable].
func (g *GuardedIssuer) Prepare(ctx context.Context, req ra.Request) (*ra.Order, error) {
	return guarded(ctx, g.lease, func(ctx context.Context) (*ra.Order, error) { return g.Issuer.Prepare(ctx, req) })
}

// Issue calls the engine if the Lease is held. The error is else a [ca.Unavailable].
func (g *GuardedIssuer) Issue(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
	return guarded(ctx, g.lease, func(ctx context.Context) (ra.Certificate, error) { return g.Issuer.Issue(ctx, o) })
}

// guarded makes a call in the current term. No outcome of a call that the end of the term may
// have disturbed is final.
func guarded[T any](ctx context.Context, l *Lease, call func(context.Context) (T, error)) (T, error) {
	var none T
	t := l.term.Load()
	if t == nil {
		return none, l.refusal()
	}
	ctx, leave, ok := t.enter(ctx)
	if !ok {
		return none, l.refusal()
	}
	defer leave()
	value, err := call(ctx)
	if err != nil && t.over.Err() != nil {
		return none, ca.Errorf(ca.Unavailable, "the Lease %s was lost during the call: %v", l.name(), err)
	}
	return value, err
}
