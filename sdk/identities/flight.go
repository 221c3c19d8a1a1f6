package identities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// flight is one attempt to get a certificate. It touches no mutable state of its entry.
type flight struct {
	entry      *entry
	credential *credential // nil if the peer was identified
	by         process
	stranger   bool // it counts among the tokens that are tried
	token      ca.Token
	asked      pki.Identity
	accept     func(pki.Identity) error
	order      *secret.Order // nil: make a new one
	signer     *secret.Signer

	item *secret.Item
	err  error
}

// start queues an attempt with the token of a valid session. It ends sessions whose token
// has expired.
func (c *Set) start(e *entry, now time.Time) {
	s, ended := e.pick(now)
	for _, over := range ended {
		c.end(over, errOver)
	}
	if s == nil || e.gone {
		return
	}
	by := processOf(s.caller)
	stranger := e.id == "" && (e.failure == nil || e.failure.refused == nil) // otherwise it counts as refused
	if stranger && c.holdBack(e, by, now) {
		return
	}
	f := &flight{entry: e, stranger: stranger, credential: s.credential, by: by, asked: e.asked, accept: e.accept()}
	if s.credential != nil {
		f.token = s.credential.token
	}
	if e.failure != nil {
		f.order = e.failure.order
	}
	f.signer = c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	if stranger {
		c.strangers.addTrying(by, 1)
	}
	e.rotation.Begin(rotation.Now(now))
	c.counts.Requests++
	c.flights <- f // has room for one per signer
}

// holdBack reports whether the token of an unverified entry must not be sent, or not yet. It
// ends the streams of one that will not be.
func (c *Set) holdBack(e *entry, by process, now time.Time) bool {
	if err := c.strangers.closed(by); err != nil {
		c.complain("a token is not tried", err)
		for _, s := range slices.Clone(e.sessions) {
			c.end(s, err)
		}
		return true
	}
	if c.strangers.busy(by) {
		c.deadlines.put(e, now.Add(holdBack))
		return true
	}
	return false
}

// work runs attempts until the Set is closed. The workers are permanent, as growing a new
// stack for each attempt takes a twentieth of its cost.
func (c *Set) work() {
	turn := call.NewTurn()
	for {
		select {
		case <-c.ctx.Done():
			return
		case f := <-c.flights:
			f.err = redact.Error(c.fly(f, turn), f.token)
			c.land(f)
		}
	}
}

// fly makes the key and the CSR, exchanges the token and asks the authority.
func (c *Set) fly(f *flight, turn call.Turn) (err error) {
	if f.order == nil {
		spec := c.cfg.Certificate
		spec.Identity = f.asked
		if f.order, err = secret.NewOrder(spec); err != nil {
			return err
		}
	}
	sent, err := c.exchange(turn, f.token)
	if err != nil {
		return err
	}
	f.item, err = f.signer.Sign(c.ctx, f.order, sent, f.accept)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || c.cfg.Exchange.Token == nil {
		return err
	}
	c.cfg.Exchange.Rejected(sent)
	again, exchangeErr := c.exchange(turn, f.token)
	switch {
	case exchangeErr != nil:
		return redact.Error(exchangeErr, sent)
	case again == sent && f.token != "":
		return err // a stream's token does not change, so a retry is pointless
	}
	f.item, err = f.signer.Sign(c.ctx, f.order, again, f.accept) // one retry
	return err
}

// exchange returns the token to send for a stream's token. An Exchange that ignores its
// context keeps the turn of its worker, and no other.
func (c *Set) exchange(turn call.Turn, token ca.Token) (ca.Token, error) {
	if c.cfg.Exchange.Token == nil {
		return token, nil
	}
	sent, err := call.Do(c.ctx, c.cfg.Exchange.Timeout, turn, func(ctx context.Context) (ca.Token, error) {
		return c.cfg.Exchange.Token(ctx, token)
	})
	if err != nil {
		return "", fmt.Errorf("exchange the token of a stream: %w", err)
	}
	return sent, nil
}

// land takes the result of an attempt and frees its signer.
func (c *Set) land(f *flight) {
	c.mu.Lock()
	defer c.unlock()
	now := c.now()
	c.idle = append(c.idle, f.signer)
	if f.stranger {
		c.strangers.addTrying(f.by, -1)
	}
	switch {
	case c.ctx.Err() != nil:
	case f.err != nil:
		c.fail(f, now)
	case f.entry.id == "":
		c.introduce(f, now)
	default:
		if f.credential != nil {
			f.credential.doubted = false
		}
		c.arrive(f.entry, f.item)
	}
	c.nudge()
}
