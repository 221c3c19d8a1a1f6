package secret

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// order is a request for one certificate. A retry reuses the order, so that an authority
// can recognize the repeat; a new key makes a new order.
type order struct {
	id  string
	key crypto.Signer
	csr []byte
}

func newOrder(spec Spec, key crypto.Signer) (*order, error) {
	csr, err := pki.CreateCSR(key, spec.Identity)
	if err != nil {
		return nil, err
	}
	return &order{id: uuid.NewString(), key: key, csr: csr}, nil
}

func (o *order) request(spec Spec, token ca.Token) ca.SignRequest {
	r := ca.SignRequest{
		ID: o.id, CSR: bytes.Clone(o.csr), TTL: spec.TTL, Token: token,
		DNSNames: slices.Clone(spec.Identity.DNSNames), IPAddresses: slices.Clone(spec.Identity.IPAddresses),
	}
	if spec.Identity.SPIFFEID != nil {
		r.SubjectID = spec.Identity.SPIFFEID.String()
	}
	return r
}

// attempt is one try to fill an order: read the token, ask the authority, verify the
// reply. It runs in its own goroutine and touches no mutable state of its leaf.
type attempt struct {
	leaf   *leaf
	by     *choice // the authority to ask
	last   bool    // do not sign if the token is later than the known one
	known  credential
	begun  time.Time
	cancel context.CancelFunc

	order  *order // nil when a new order is needed
	bearer ca.Bearer
	chain  *pki.Chain
	from   string // who signed, according to the reply
	err    error
}

// ask starts an attempt in a goroutine.
func (l *leaf) ask(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{leaf: l, by: l.choice(), begun: time.Now(), cancel: cancel, order: l.order, last: l.onlyLast(), known: l.credential}
	l.flight = a
	l.spawn(func() {
		defer cancel()
		a.err = a.run(ctx)
		select {
		case l.replies <- a:
		case <-a.by.stop:
		}
	})
}

func (a *attempt) run(ctx context.Context) (err error) {
	if err = a.readToken(ctx); err != nil {
		return err // final, even if a token exchange rejected its subject token
	}
	if a.last && a.known.later(a.bearer) {
		return nil
	}
	if a.order == nil {
		if a.order, err = a.newOrder(ctx); err != nil {
			return err
		}
	}
	err = a.sign(ctx)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || a.by.Token == nil {
		return err
	}
	a.by.TokenRejected(a.bearer.Token)
	if err := a.readToken(ctx); err != nil {
		return err
	}
	return a.sign(ctx) // one retry, with the token just read
}

// errNoKey marks a failure that is not the authority's fault.
var errNoKey = errors.New("no key could be made")

// newOrder generates a key and its CSR. Each key from a KeySource is an outside call.
func (a *attempt) newOrder(ctx context.Context) (*order, error) {
	spec := a.leaf.spec
	key, err := call(ctx, a.by.Timeout, a.by.asks, func(ctx context.Context) (crypto.Signer, error) {
		if a.leaf.keys == nil {
			return pki.GenerateKey(spec.KeyType)
		}
		return a.leaf.keys.NewKey(ctx, spec.Name, spec.KeyType)
	})
	if err != nil {
		return nil, fmt.Errorf("%w (type %q): %w", errNoKey, spec.KeyType, err)
	}
	return newOrder(spec, key)
}

// sign sends the order with the token and verifies the reply.
func (a *attempt) sign(ctx context.Context) error {
	authority, token := a.by.authority, a.bearer.Token
	asked := time.Now()
	reply, err := call(ctx, authority.Timeout, a.by.asks, func(ctx context.Context) (ca.Certificate, error) {
		return authority.Client.CSRSign(ctx, a.order.request(a.leaf.spec, token))
	})
	if err != nil {
		return fmt.Errorf("authority %q: %w", authority.Name, withoutToken(err, token))
	}
	a.from = text.Clean(reply.Signer)
	a.chain, err = authority.verify(ctx, a.leaf, reply, asked, a.check)
	return err
}

func (a *attempt) readToken(ctx context.Context) (err error) {
	if a.by.Token == nil {
		return nil
	}
	a.bearer, err = call(ctx, a.by.Timeout, a.by.asks, a.by.Token)
	if err != nil {
		return fmt.Errorf("read the token for authority %q: %w", a.by.Name, err)
	}
	return nil
}

// check verifies the chain against the request.
func (a *attempt) check(chain []byte, roots *pki.Bundle) (*pki.Chain, error) {
	spec, authority := a.leaf.spec, a.by
	now := authority.now()
	c := pki.Check{
		Key: a.order.key.Public(), Identity: spec.Identity, Names: authority.Names,
		Roots: roots, Now: now, AcceptLonger: authority.AcceptLongerTTL,
	}
	if spec.TTL > 0 {
		c.AskedUntil = now.Add(spec.TTL)
	}
	verified, err := c.Chain(chain)
	if err == nil {
		err = a.checkAnchor(c, chain)
	}
	if err != nil {
		return nil, err
	}
	return verified, a.leaf.checkOthers(verified.Identity)
}

// checkOthers rejects a name that belongs to another identity of this agent, even if the
// authority may choose names.
func (l *leaf) checkOthers(got pki.Identity) error {
	own := l.spec.Identity.Names()
	for _, name := range got.Names() {
		if l.taken[name] && !slices.Contains(own, name) {
			return &pki.CheckError{Check: "names", Detail: fmt.Sprintf("the leaf has %.256q, which is the name of another secret here", name)}
		}
	}
	return nil
}

// item returns the Item for a successful attempt.
func (a *attempt) item(spec Spec, authority string) (*Item, error) {
	leaf := a.chain.Leaf
	item := &Item{
		Name: spec.Name, Kind: KeyPair, Version: version.Of(a.chain.PEM), Chain: a.chain.PEM,
		Identity: a.chain.Identity, Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
		Authority: authority, Signer: a.from, RootFingerprint: pki.Fingerprint(a.chain.Root),
	}
	var err error
	if item.Key, err = pki.EncodeKey(a.order.key); err != nil && a.leaf.keys != nil {
		item.KeyHandle, err = a.order.key, nil // the key cannot leave its device
	}
	return item, err
}
