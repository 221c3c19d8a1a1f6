package identities

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// question asks when to renew the certificate that an entry held at the time.
type question struct {
	entry *entry
	item  *secret.Item
}

// renewalAdvice is the authority's advice for all identities. One goroutine asks, one question at
// a time, so that an authority that hangs keeps no signer from its work. Set.mu guards it.
type renewalAdvice struct {
	signer  *secret.Signer // asks, and signs nothing
	waiting []question     // at most one for each entry
	wake    chan struct{}
	silent  bool // the authority gives no advice
}

// advisable sets whether the entry's rotation may ask the authority.
func (c *Set) advisable(e *entry, now time.Time) {
	since := e.item.Issued
	if c.renewalAdvice.silent {
		since = time.Time{}
	}
	e.rotation.Advisable(rotation.Now(now), since)
}

// consult queues a question.
func (c *Set) consult(e *entry) {
	e.rotation.Consult()
	c.renewalAdvice.waiting = append(c.renewalAdvice.waiting, question{e, e.item})
	select {
	case c.renewalAdvice.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// advise asks the queued questions until the Set is closed.
func (c *Set) advise() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.renewalAdvice.wake:
		}
		for q, ok := c.nextQuestion(); ok && c.ctx.Err() == nil; q, ok = c.nextQuestion() {
			info, err := c.renewalAdvice.signer.Advice(c.ctx, q.item)
			c.advised(q, info, err)
		}
	}
}

// nextQuestion drops questions on certificates that are replaced.
func (c *Set) nextQuestion() (q question, ok bool) {
	c.mu.Lock()
	defer c.unlock()
	for len(c.renewalAdvice.waiting) > 0 {
		q, c.renewalAdvice.waiting = c.renewalAdvice.waiting[0], c.renewalAdvice.waiting[1:]
		if q.current() {
			return q, true
		}
	}
	c.renewalAdvice.waiting = nil // with its array
	return question{}, false
}

// current reports whether the entry still holds the certificate; its item may be another copy.
func (q question) current() bool {
	return !q.entry.gone && q.entry.item.Fingerprint == q.item.Fingerprint
}

// advised takes the answer to a question.
func (c *Set) advised(q question, info ca.RenewalInfo, err error) {
	c.mu.Lock()
	defer c.unlock()
	if !q.current() {
		return
	}
	now, e := c.now(), q.entry
	at := rotation.Now(now)
	if err != nil {
		c.renewalAdvice.silent = c.renewalAdvice.silent || ca.ActionFor(err) == ca.Missing
		e.rotation.Unadvised(at, err)
		c.say(func() { c.cfg.Log.Debug("no advice on when to renew", "error", secret.NewFailure(err, now, 0).Text) })
	} else if renew, moved := e.rotation.Advised(at, info); moved {
		c.moveRenewal(e, renew, secret.NewAdvice(info))
	}
	c.schedule(e)
}

// moveRenewal renews what is held at another time, by advice.
func (c *Set) moveRenewal(e *entry, renew time.Time, advice *secret.Advice) {
	item := *e.item // one that was served does not change
	item.RenewAt = renew
	e.item = &item
	c.counts.Advised++
	c.counts.Advice = advice
	c.say(func() {
		c.cfg.Log.Debug("renewal moved, as the authority advises", "identity", item.Identity.String(), "renew_at", renew,
			"window_start", advice.WindowStart, "window_end", advice.WindowEnd, "explanation", advice.Explanation)
	})
}
