package secret

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
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

func (o *order) request(spec Spec, requester string, token ca.Token) ca.SignRequest {
	r := ca.SignRequest{
		ID: o.id, CSR: bytes.Clone(o.csr), TTL: spec.TTL, Token: token,
		DNSNames: slices.Clone(spec.Identity.DNSNames), IPAddresses: slices.Clone(spec.Identity.IPAddresses),
	}
	if spec.Identity.SPIFFEID != nil {
		r.SubjectID = spec.Identity.SPIFFEID.String()
	}
	if r.Requester = requester; requester != "" && spec.Name != "" {
		r.Requester += ", secret " + spec.Name
	}
	return r
}

// attempt is one try to fill an order: read the token, ask the authority, verify the
// reply. It runs in its own goroutine and touches nothing of its leaf that changes.
type attempt struct {
	plan
	leaf     *leaf      // for whom the authority keeps the roots
	keys     KeySource  // nil: generate keys in process
	by       *authority // the one to ask
	turn     call.Turn  // at it
	conf     *Authority
	onlyLast bool       // do not sign if the token is later than the previous one; take only a successor
	held     *pki.Chain // what a Giver's key pair would replace; nil: nothing valid
	previous credential
	refused  refusedToken
	begun    time.Time // by the monotonic clock
	began    time.Time // by the wall clock
	why      string    // for the trace, as are tries
	tries    int
	cancel   context.CancelFunc

	order  *order                // nil when a new order is needed
	made   atomic.Pointer[order] // the new order, for its leaf to read meanwhile
	bearer ca.Bearer
	seen   *pki.Bundle // what was served when the reply was checked
	chain  *pki.Chain
	item   *Item
	from   string // who signed, according to the reply
	facts  ca.Facts
	// overdue is when to renew what a Giver gave; zero: this is drawn.
	overdue time.Time
	err     error
}

// ask starts an attempt in a goroutine.
func (l *leaf) ask() {
	by := l.authorities[l.at]
	sent := l.sentTo(by)
	a := &attempt{
		plan: l.plan, leaf: l, keys: l.config.Keys, by: by, turn: l.turns[l.at], conf: by.settings(), begun: time.Now(), began: l.now(), order: sent.order,
		onlyLast: l.onlyLast(), previous: l.credential, refused: sent.refused,
	}
	if l.held != nil && l.held.Ends.After(a.began) {
		a.held = l.held
	}
	l.tries++
	a.why, a.tries = l.why(), l.tries
	ctx, cancel := context.WithCancel(l.ctx)
	a.cancel = cancel
	l.flight = a
	l.rotation.Begin(rotation.Now(a.began))
	l.recordDue(a.began) // before the authority's client can ask
	l.spawn(func() {
		defer cancel()
		a.err = a.inPlace(ctx, l.config.Tracer)
		select {
		case l.replies <- a:
		case <-l.ctx.Done():
		}
	})
}

// inPlace is traced, once one of the authority's places is free.
func (a *attempt) inPlace(ctx context.Context, t trace.Tracer) error {
	select {
	case a.by.running <- struct{}{}:
		defer func() { <-a.by.running }()
		return a.traced(ctx, t)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attempt) run(ctx context.Context) (err error) {
	if giver, gives := a.conf.Client.(Giver); gives {
		return a.take(ctx, giver)
	}
	if err = a.readToken(ctx); err != nil {
		return err // final, even if a token exchange rejected its subject token
	}
	if a.onlyLast && a.previous.later(a.bearer) {
		return nil
	}
	if err = a.refused.again(a.bearer.Token); err != nil {
		return err
	}
	if a.order == nil {
		if a.order, err = a.newOrder(ctx); err != nil {
			return err
		}
		a.made.Store(a.order)
	}
	err = a.sign(ctx)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || a.conf.Token == nil {
		return err
	}
	sent := a.bearer.Token
	a.conf.TokenRejected(sent)
	if err := a.readToken(ctx); err != nil {
		return redact.Error(err, sent)
	}
	if a.bearer.Token == sent {
		return err // it would be refused again; the next attempt comes soon
	}
	return a.sign(ctx) // one retry, with the token just read
}

// errNoKey marks a failure that is not the authority's fault.
var errNoKey = errors.New("no key could be made")

// newOrder generates a key and its CSR. Each key from a KeySource is an outside call.
func (a *attempt) newOrder(ctx context.Context) (_ *order, err error) {
	ctx, span := trace.Start(ctx, "key", trace.Internal)
	defer func() { span.End(err) }()
	spec := a.spec
	key, err := call.Do(ctx, a.conf.Timeout, a.turn, func(ctx context.Context) (crypto.Signer, error) {
		if a.keys == nil {
			return pki.GenerateKey(spec.KeyType)
		}
		return a.keys.NewKey(ctx, spec.Name, spec.KeyType)
	})
	if err != nil {
		return nil, fmt.Errorf("%w (type %q): %w", errNoKey, spec.KeyType, err)
	}
	return newOrder(spec, key)
}

// sign sends the order with the token and verifies the reply.
func (a *attempt) sign(ctx context.Context) (err error) {
	ctx, span := trace.Start(ctx, "sign", trace.Internal)
	defer func() { span.End(err) }()
	ctx, examined := memory.Keep(ctx)
	defer examined()
	authority, token := a.by, a.bearer.Token
	asked := time.Now()
	reply, err := call.Do(ctx, a.conf.Timeout, a.turn, func(ctx context.Context) (ca.Certificate, error) {
		return a.conf.Client.CSRSign(ctx, a.order.request(a.spec, a.conf.Requester, token))
	})
	if err != nil {
		err = redact.Error(err, token)
		a.refused.note(token, err)
		return fmt.Errorf("authority %q: %w", authority.Name, err)
	}
	a.from, a.facts, a.seen = text.Redact(reply.Signer, token), reply.Facts, authority.bundle.Load()
	if a.chain, err = authority.verify(ctx, a, reply, asked); err != nil {
		return err
	}
	a.item, err = a.newItem(authority.now())
	return err
}

func (a *attempt) readToken(ctx context.Context) (err error) {
	if a.conf.Token == nil {
		return nil
	}
	ctx, span := trace.Start(ctx, "token", trace.Internal)
	defer func() { span.End(err) }()
	a.bearer, err = call.Do(ctx, a.conf.Timeout, a.turn, a.conf.Token)
	if err != nil {
		return fmt.Errorf("read the token for authority %q: %w", a.by.Name, err)
	}
	return nil
}

// check verifies the chain against the request.
func (a *attempt) check(chain []byte, roots *pki.Bundle) (*pki.Chain, error) {
	spec, now := a.spec, a.by.now()
	names, longer := a.conf.Accepts(a.facts)
	c := pki.Check{
		Key: a.order.key.Public(), Identity: spec.Identity, Names: names, RequestID: a.order.id,
		Roots: roots, Now: now, AcceptLonger: longer,
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
	return verified, a.checkOthers(verified.Leaf)
}

// checkOthers rejects a name that belongs to another identity of this agent or covers one that
// does, even if the authority may choose names. Some clients read the common name as a DNS name.
func (a *attempt) checkOthers(leaf *x509.Certificate) error {
	own := a.spec.Identity.Names()
	for _, name := range pki.AllNames(leaf) {
		if slices.Contains(own, name) {
			continue
		}
		if other, owner, found := a.taken.other(name, a.spec.Name); found {
			return &pki.CheckError{Check: "names", Detail: fmt.Sprintf("the leaf has %.256q, but %.256q is the name of the secret %.256q", name, other, owner)}
		}
	}
	return nil
}

// newItem returns the Item for the verified chain; now is when it was verified. It draws
// the renewal. The lifetime counts from now, as authorities backdate certificates.
func (a *attempt) newItem(now time.Time) (*Item, error) {
	leaf := a.chain.Leaf
	item := &Item{
		Name: a.spec.Name, Kind: KeyPair, Version: version.Of(a.chain.PEM), Chain: a.chain.PEM,
		Identity: a.chain.Identity, Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: a.chain.Ends, Issued: now,
		RenewAt:   rotation.Renewal(a.spec.RenewRatio, a.spec.RenewJitter, clock.Later(now, leaf.NotBefore), a.chain.Ends),
		Authority: a.by.Name, Signer: a.from, facts: a.facts, RootFingerprint: pki.Fingerprint(a.chain.Root),
	}
	if !a.overdue.IsZero() {
		item.RenewAt = a.overdue
	}
	var err error
	if item.Key, err = pki.EncodeKey(a.order.key); err != nil && a.keys != nil {
		item.KeyHandle, err = a.order.key, nil // the key cannot leave its device
	}
	return item, err
}
