package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Order is a request for one certificate, with its key. Sending it again is a retry; a new
// key needs a new order. Its fields do not change. Experimental.
type Order struct {
	spec  Spec
	order *order
}

// NewOrder makes a key and a CSR for spec. It uses the Name, Identity, KeyType, TTL and
// Anchor; Sign uses the RenewRatio and RenewJitter to draw the renewal time. Experimental.
func NewOrder(spec Spec) (*Order, error) {
	spec = spec.withDefaults()
	key, err := pki.GenerateKey(spec.KeyType)
	if err != nil {
		return nil, err
	}
	o, err := newOrder(spec, key)
	if err != nil {
		return nil, err
	}
	return &Order{spec: spec, order: o}, nil
}

// Again reports whether the order may be sent again after err. If not, make a new one.
func (o *Order) Again(err error) bool { return !endsOrder(err) }

// Same reports whether both are one order, as the one that [Keep] recorded and [Manager.Restore]
// returned. Nil is the same as nothing.
func (o *Order) Same(other *Order) bool {
	return o != nil && other != nil && o.order.id == other.order.id
}

// Signer has an authority of a [Manager] sign orders for secrets that the Manager does not
// hold, one at a time. Replies pass the same checks, and their roots join the Manager's
// trust bundles. Experimental.
//
// It runs calls in one goroutine of its own, which the first call starts: with a new one for each of
// thousands of calls, growing stacks would dominate. Close ends that goroutine.
type Signer struct {
	manager   *Manager
	authority string
	asks      call.Turn
	jobs      chan func() // one job at a time, from the holder of the turn; nil before the first
}

// Signer returns a Signer for the authority with that name. Each request uses the settings
// in force at the time. Experimental.
func (m *Manager) Signer(authority string) *Signer {
	return &Signer{manager: m, authority: authority, asks: call.NewTurn()}
}

// Close ends the Signer; call it once, after the last Sign. It abandons a client call that
// ignores its context.
func (s *Signer) Close() {
	if s.jobs != nil {
		close(s.jobs)
	}
}

// Idle reports whether no call runs. A client that ignores its context may still be in the last one.
func (s *Signer) Idle() bool { return s.asks.Free() }

// Sign sends the order with a token and returns the Item for the verified certificate. Its
// renewal time is drawn, and it may become valid only some minutes later. Besides the
// authority's own name check, accept must accept the names in the certificate; its error
// should be a [*pki.CheckError].
//
// A client that ignores its context blocks the Signer: until it returns, each further call
// fails after the authority's timeout.
func (s *Signer) Sign(ctx context.Context, o *Order, token ca.Token, accept func(pki.Identity) error) (item *Item, err error) {
	ctx, span := trace.Begin(ctx, s.manager.config.Tracer, issuance)
	defer func() { endIssuance(span, o.spec, s.authority, item, err) }()
	ctx, examined := memory.Keep(ctx)
	defer examined()
	by := s.manager.current.Load().authorities[s.authority]
	if by == nil {
		return nil, ca.Errorf(ca.NotConfigured, "authority %q is not configured", s.authority)
	}
	conf, asked := by.settings(), time.Now()
	reply, err := call.In(ctx, s.run, conf.Timeout, s.asks, func(ctx context.Context) (ca.Certificate, error) {
		return conf.Client.CSRSign(ctx, o.order.request(o.spec, conf.Requester, token))
	})
	if err != nil {
		return nil, fmt.Errorf("authority %q: %w", by.Name, redact.Error(err, token))
	}
	a := &attempt{plan: plan{spec: o.spec}, leaf: by.standIn, by: by, conf: conf, order: o.order, from: text.Redact(reply.Signer, token), facts: reply.Facts}
	a.chain, err = by.verifyFast(ctx, a, reply, asked)
	if err == nil {
		err = accept(a.chain.Identity)
	}
	if err != nil {
		return nil, by.unlessEnded(err)
	}
	by.recordIssued(a.chain.Ends)
	return a.newItem(by.now())
}

// Obtain is [Signer.Sign] with the authority's own token, as the Manager reads it. A token that the
// authority rejects is read once more.
func (s *Signer) Obtain(ctx context.Context, o *Order, accept func(pki.Identity) error) (*Item, error) {
	sent, err := s.token(ctx)
	if err != nil {
		return nil, err
	}
	item, err := s.Sign(ctx, o, sent, accept)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || sent == "" {
		return item, err
	}
	if by := s.manager.current.Load().authorities[s.authority]; by != nil {
		by.settings().TokenRejected(sent)
	}
	again, readErr := s.token(ctx)
	switch {
	case readErr != nil:
		return nil, redact.Error(readErr, sent)
	case again == sent:
		return nil, err // it would be refused again
	}
	return s.Sign(ctx, o, again, accept)
}

// token reads the authority's token; it is empty if there is none.
func (s *Signer) token(ctx context.Context) (ca.Token, error) {
	by := s.manager.current.Load().authorities[s.authority]
	if by == nil {
		return "", ca.Errorf(ca.NotConfigured, "authority %q is not configured", s.authority)
	}
	conf := by.settings()
	if conf.Token == nil {
		return "", nil
	}
	bearer, err := call.In(ctx, s.run, conf.Timeout, s.asks, conf.Token)
	if err != nil {
		return "", fmt.Errorf("read the token for authority %q: %w", by.Name, err)
	}
	return bearer.Token, nil
}

// Advice asks the authority when to renew the item's certificate. A Signer that is asked for
// advice should sign nothing: an authority that hangs would block both.
func (s *Signer) Advice(ctx context.Context, item *Item) (ca.RenewalInfo, error) {
	by := s.manager.current.Load().authorities[s.authority]
	if by == nil {
		return ca.RenewalInfo{}, ca.Errorf(ca.NotConfigured, "authority %q is not configured", s.authority)
	}
	return advice(ctx, s.run, by.settings(), s.asks, item.Chain)
}

// run runs a job. The caller has the turn.
func (s *Signer) run(job func()) {
	if s.jobs == nil {
		s.jobs = make(chan func(), 1)
		go func() {
			for job := range s.jobs {
				job()
			}
		}()
	}
	s.jobs <- job
}

// Leads returns the fingerprint of the authority's current root that the item's chain
// leads to; ok is false if there is none.
func (s *Signer) Leads(item *Item) (root string, ok bool) {
	by := s.manager.current.Load().authorities[s.authority]
	if by == nil {
		return "", false
	}
	certs, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		return "", false
	}
	cert := rootOf(&pki.Chain{Leaf: certs[0], PEM: item.Chain}, by.bundle.Load(), by.now())
	if cert == nil {
		return "", false
	}
	return pki.Fingerprint(cert), true
}

// unlessEnded returns err, or ca.Aborted if a reload has retired the authority meanwhile.
func (a *authority) unlessEnded(err error) error {
	if a.ctx.Err() != nil {
		return ca.Errorf(ca.Aborted, "authority %q is configured no more", a.Name)
	}
	return err
}
