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
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// flight is one attempt to get a certificate. It touches no mutable state of its entry.
type flight struct {
	set        *Set
	entry      *entry
	credential *credential // nil if the peer was identified
	by         process
	stranger   bool // it counts among the tokens that are tried
	token      ca.Token
	asked      pki.Identity
	accept     func(pki.Identity) error
	order      *secret.Order // nil: make a new one
	number     int           // of the request, by Counts.Requests

	item   *secret.Item
	err    error
	unsent bool // the token could not be exchanged
}

// request returns an attempt with the token of a valid session. It ends sessions whose token
// has expired.
func (c *Set) request(e *entry, now time.Time) schedule.Job {
	s, ended := e.pick(now)
	for _, over := range ended {
		c.end(over, errOver)
	}
	if s == nil || e.Gone() {
		return nil
	}
	by := processOf(s.caller)
	stranger := e.id == "" && !e.failure.counts()
	if stranger && c.holdBack(e, by, now) {
		return nil
	}
	f := &flight{set: c, entry: e, stranger: stranger, credential: s.credential, by: by, asked: e.asked, accept: e.accept()}
	if s.credential != nil {
		f.token = s.credential.token
	}
	if e.failure != nil {
		f.order = e.failure.order
	}
	if stranger {
		c.strangers.addTrying(by, 1)
	}
	e.Rotation.Begin(rotation.Now(now))
	c.counts.Requests++
	f.number = c.counts.Requests
	e.uses(s.credential).tried = f.number
	return f
}

// holdBack reports whether the token of an unverified entry must not be sent, or not yet. It
// ends the streams of one that will not be.
func (c *Set) holdBack(e *entry, by process, now time.Time) bool {
	if err := c.strangers.closed(by); err != nil {
		c.sched.Complain("a token is not tried", err)
		for _, s := range slices.Clone(e.sessions) {
			c.end(s, err)
		}
		return true
	}
	if c.strangers.busy(by) {
		c.sched.LookAt(e, now.Add(holdBack))
		return true
	}
	return false
}

// Run implements [schedule.Job].
func (f *flight) Run(w *schedule.Worker) { f.err = redact.Error(f.set.fly(f, w), f.token) }

// fly makes the key and the CSR, exchanges the token and asks the authority.
func (c *Set) fly(f *flight, w *schedule.Worker) (err error) {
	if f.order == nil {
		spec := c.cfg.Certificate
		spec.Identity = f.asked
		if f.order, err = secret.NewOrder(spec); err != nil {
			return err
		}
	}
	sent, err := c.exchange(w.Turn, f.token)
	if f.unsent = err != nil; f.unsent {
		return err
	}
	f.item, err = w.Signer.Sign(c.sched.Context, f.order, sent, f.accept)
	if err == nil || ca.ActionFor(err) != ca.RefreshToken || c.cfg.Exchange.Token == nil {
		return err
	}
	c.cfg.Exchange.Rejected(sent)
	again, exchangeErr := c.exchange(w.Turn, f.token)
	f.unsent = exchangeErr != nil
	switch {
	case f.unsent:
		return redact.Error(exchangeErr, sent)
	case again == sent && f.token != "":
		return err // a stream's token does not change, so a retry is pointless
	}
	f.item, err = w.Signer.Sign(c.sched.Context, f.order, again, f.accept) // one retry
	return err
}

// exchange returns the token to send for a stream's token. An Exchange that ignores its
// context keeps the turn of its worker, and no other.
func (c *Set) exchange(turn call.Turn, token ca.Token) (ca.Token, error) {
	if c.cfg.Exchange.Token == nil {
		return token, nil
	}
	sent, err := call.Do(c.sched.Context, c.cfg.Exchange.Timeout, turn, func(ctx context.Context) (ca.Token, error) {
		return c.cfg.Exchange.Token(ctx, token)
	})
	if err != nil {
		return "", fmt.Errorf("exchange the token of a stream: %w", err)
	}
	return sent, nil
}

// Land implements [schedule.Job].
func (f *flight) Land(now time.Time) {
	c := f.set
	if f.stranger {
		c.strangers.addTrying(f.by, -1)
	}
	if f.err != nil {
		c.fail(f, now)
		return
	}
	*f.entry.uses(f.credential) = uses{}
	if f.entry.id == "" {
		c.introduce(f, now)
	} else {
		c.arrive(f.entry, f.item)
	}
}
