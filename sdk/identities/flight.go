package identities

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// flight is one attempt to get a certificate. It touches nothing of its entry that
// changes.
type flight struct {
	entry      *entry
	credential *credential // nil where the peer is known
	by         process
	token      ca.Token
	asked      pki.Identity
	accept     func(pki.Identity) error
	order      *secret.Order // nil at the start of a new one
	signer     *secret.Signer

	item *secret.Item
	err  error
}

// start sends an attempt on its way, with the token of a session that is still good.
// Those whose token has expired end here.
func (c *Set) start(e *entry, now time.Time) {
	s, ended := e.pick(now)
	for _, over := range ended {
		c.end(over, errOver)
	}
	if s == nil || e.gone {
		return
	}
	f := &flight{entry: e, credential: s.credential, by: processOf(s.caller), asked: e.asked, accept: e.accept()}
	if s.credential != nil {
		f.token = s.credential.token
	}
	if e.trouble != nil {
		f.order = e.trouble.order
	}
	f.signer = c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	e.flying = true
	c.counts.Requests++
	c.flights <- f // there is room for as many as there are signers
}

// work makes attempts until the Set is closed. The goroutines stay, as growing their
// stacks anew for each attempt is a twentieth of what one costs.
func (c *Set) work() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case f := <-c.flights:
			f.err = c.fly(f)
			c.land(f)
		}
	}
}

// fly makes the key, exchanges the token and asks the authority.
func (c *Set) fly(f *flight) (err error) {
	if f.order == nil {
		spec := c.cfg.Certificate
		spec.Identity = f.asked
		if f.order, err = secret.NewOrder(spec); err != nil {
			return err
		}
	}
	sent, err := c.exchange(f.token)
	if err != nil {
		return err
	}
	f.item, err = f.signer.Sign(c.ctx, f.order, sent, f.accept)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || c.cfg.Exchange.Token == nil {
		return err
	}
	c.cfg.Exchange.Rejected(sent)
	again, exchangeErr := c.exchange(f.token)
	switch {
	case exchangeErr != nil:
		return exchangeErr
	case again == sent && f.token != "":
		return err // nothing was exchanged anew: a stream's token does not change
	}
	f.item, err = f.signer.Sign(c.ctx, f.order, again, f.accept) // once
	return err
}

// exchange returns the token to send for that of a stream.
func (c *Set) exchange(token ca.Token) (ca.Token, error) {
	if c.cfg.Exchange.Token == nil {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Exchange.Timeout)
	defer cancel()
	sent, err := c.cfg.Exchange.Token(ctx, token)
	if err != nil {
		return "", fmt.Errorf("exchange the token of a stream: %w", err)
	}
	return sent, nil
}

// land takes what an attempt brought back, and lets the next one start.
func (c *Set) land(f *flight) {
	c.mu.Lock()
	defer c.unlock()
	now := c.now()
	c.idle = append(c.idle, f.signer)
	f.entry.flying = false
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
		c.arrive(f.entry, f.item, now)
	}
	c.nudge()
}
