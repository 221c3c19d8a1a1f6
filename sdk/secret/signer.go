package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Order is a request for one certificate, with its key. Sent again, it is the same
// request to the authority; a new key is a new order.
type Order struct {
	leaf  *leaf // what a reply is held against
	order *order
}

// NewOrder makes a key and a request for what spec asks for: its Name, Identity,
// KeyType, TTL and Anchor count, and its RenewRatio and RenewJitter for the moment of
// the rotation.
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
	return &Order{leaf: &leaf{spec: spec}, order: o}, nil
}

// Again tells whether the order may be sent again after err, or is to be followed by
// a new one.
func (o *Order) Again(err error) bool { return !endsOrder(err) }

// Signer has an authority of a [Manager] sign orders for secrets that the Manager does
// not hold itself, one at a time. Replies pass the same checks, and roots that they
// bring become part of the Manager's trust bundles.
//
// It has a goroutine of its own, as thousands of calls with a new one each would spend
// their time growing stacks. Close ends it.
type Signer struct {
	manager   *Manager
	authority string
	asks      turn
	jobs      chan func() // one at a time: whoever has the turn
}

// Signer returns one for the authority of that name, as it is configured at the time
// of each request.
func (m *Manager) Signer(authority string) *Signer {
	s := &Signer{manager: m, authority: authority, asks: newTurn(), jobs: make(chan func(), 1)}
	go func() {
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// Close ends the Signer, which is not used any more. A call of a client that ignores its
// context is left behind.
func (s *Signer) Close() { close(s.jobs) }

// Sign sends the order with a token and returns what its certificate gives to serve:
// verified, with the moment drawn for its rotation, and perhaps not valid for some
// minutes yet. accept is asked whether the names in it will do, beside the authority's
// own rule; its error should be a [*pki.CheckError].
//
// A client that ignores its context keeps the Signer: until it returns, each further
// call fails with the authority's timeout.
func (s *Signer) Sign(ctx context.Context, o *Order, token ca.Token, accept func(pki.Identity) error) (*Item, error) {
	by := s.manager.current.Load().authority(s.authority)
	if by == nil {
		return nil, ca.Errorf(ca.NotConfigured, "authority %q is not configured", s.authority)
	}
	asked := time.Now()
	reply, err := callIn(ctx, s.run, by.Timeout, s.asks, func(ctx context.Context) (ca.Certificate, error) {
		return by.Client.CSRSign(ctx, o.order.request(o.leaf.spec, token))
	})
	if err != nil {
		return nil, fmt.Errorf("authority %q: %w", by.Name, withoutToken(err, token))
	}
	a := &attempt{leaf: o.leaf, by: &choice{authority: by}, order: o.order, from: text.Clean(reply.Signer)}
	a.chain, err = by.vouch(ctx, reply, asked, a.check)
	if err == nil {
		err = accept(a.chain.Identity)
	}
	if err != nil {
		return nil, by.unlessEnded(err)
	}
	by.lend(a.chain.Leaf.NotAfter)
	item, err := a.item(o.leaf.spec, by.Name)
	if err != nil {
		return nil, err
	}
	item.Issued = by.now()
	item.RenewAt = drawRenewal(o.leaf.spec, a.chain, item.Issued)
	return item, nil
}

func (s *Signer) run(job func()) { s.jobs <- job }

// Leads returns the fingerprint of the root of the authority that the item's chain
// leads to at the moment; false where there is none.
func (s *Signer) Leads(item *Item) (root string, ok bool) {
	by := s.manager.current.Load().authority(s.authority)
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

// unlessEnded returns err, or, where a reload has ended the authority meanwhile, that:
// an ended one knows no roots.
func (a *authority) unlessEnded(err error) error {
	select {
	case <-a.stop:
		return ca.Errorf(ca.Aborted, "authority %q was configured anew meanwhile", a.Name)
	default:
		return err
	}
}
