package ra

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxHolders, also of subjects, and maxNamespaces bound what is remembered. Who is forgotten has a full
	// budget again.
	maxHolders    = 200000
	maxNamespaces = 20000
	// maxCallers bounds those that wait for certificates of one holder.
	maxCallers = 8
	// maxPending bounds the orders of one holder whose IDs are remembered while the authority has
	// not decided on them.
	maxPending = 8
	// longestWait bounds an authority's own word.
	longestWait = 10 * time.Minute
)

// history is what is remembered of a holder. No protocol shows whether a caller still holds a
// certificate, and a new key proves nothing, so it is remembered here.
type history struct {
	ends    time.Time // when the last certificate issued to it ends
	asked   time.Time // the first ask since; zero: none
	budget  tokenbucket.Bucket
	callers int // that wait now
	waits   rotation.Waits
	tried   time.Time // monotonic: the last call since that brought nothing; zero: none did
	until   time.Time // monotonic: no call for it before
	err     error     // why
	// pending are the orders that the authority has not decided on, each with the time that its
	// ID was made of: a repeat must have the same ID, however long the decision takes.
	pending map[[16]byte]time.Time
}

// paused returns the error of the last call while its wait runs. What was final for that
// request is not for this one, which the authority has not seen.
func (h *history) paused(now time.Time) error {
	left := h.until.Sub(now)
	if left <= 0 || h.err == nil {
		return nil
	}
	reason := ca.ReasonFor(h.err)
	if ca.ActionFor(h.err) == ca.EndAttempt {
		reason = ca.RateLimited
	}
	err := ca.Errorf(reason, "not tried again yet: %v", h.err)
	err.RetryAfter = left
	return err
}

// failed sets the wait after a call. An authority's own word counts as it is, as the queue
// slows down for all.
func (h *history) failed(err error, now, wall time.Time) {
	wait := ca.RetryAfter(err)
	if wait == 0 && ca.ReasonFor(err) != ca.RateLimited {
		wait = h.waits.After(err, now, max(0, h.ends.Sub(wall)), 0)
	}
	h.until, h.err, h.tried = now.Add(min(max(wait, time.Second), longestWait)), toCaller(err), now
}

// decided notes whether the authority has decided on an order, whose last ID was made of a time.
func (h *history) decided(base [16]byte, err error, of time.Time) {
	switch {
	case err == nil || ca.ActionFor(err) == ca.EndAttempt:
		delete(h.pending, base)
		return
	case ca.ReasonFor(err) != ca.Pending:
		return // the authority may still have the request
	case h.pending == nil:
		h.pending = map[[16]byte]time.Time{}
	}
	if h.pending[base] = of; len(h.pending) <= maxPending {
		return
	}
	oldest := base
	for other, since := range h.pending {
		if since.Before(h.pending[oldest]) {
			oldest = other
		}
	}
	delete(h.pending, oldest)
}

// issued records a certificate.
func (h *history) issued(ends time.Time) {
	h.ends, h.asked, h.tried, h.err = ends, time.Time{}, time.Time{}, nil
	h.waits.Reset()
}

// rank returns the place in the queue: by the first ask while nothing is held, else by the
// middle of what is left of it then.
func (h *history) rank() (renewal bool, rank time.Time) {
	if left := h.ends.Sub(h.asked); left > 0 {
		return true, h.asked.Add(left / 2)
	}
	return false, h.asked
}

// account is one of the budgets that an order counts against.
type account struct {
	bucket *tokenbucket.Bucket
	every  time.Duration // in which it gains one more
	most   float64
	of     string
}

// accounts returns the budgets of an order: of its holder, of the subject that can make such holders,
// and of the namespace.
func (e *Engine) accounts(h *history, o *Order) []account {
	b := e.cfg.Budget
	all := []account{
		{&h.budget, b.HolderEvery, float64(b.Holder), "this holder has"},
		{e.namespaces.get(o.Subject.tenant()), b.NamespaceEvery, float64(b.Namespace), "its namespace has"},
	}
	if o.subject != (holder{}) {
		times := o.decision.Holders
		every, most := max(b.HolderEvery/time.Duration(times), 1), float64(b.Holder)*float64(times)
		all = append(all, account{e.subjects.get(o.subject), every, most, "all holders of its " + string(o.Subject.Kind) + " have"})
	}
	return all
}

// spend takes one certificate from the budgets, or returns how long that has to wait.
func (e *Engine) spend(h *history, o *Order, now time.Time) error {
	all := e.accounts(h, o)
	for _, a := range all {
		if wait := a.bucket.Wait(now, perSecond(a.every), a.most); wait > 0 {
			return exhausted(a.of+" had as many certificates as it may for now", wait)
		}
	}
	for _, a := range all {
		a.bucket.Spend()
	}
	return nil
}

func (e *Engine) refund(h *history, o *Order) {
	for _, a := range e.accounts(h, o) {
		a.bucket.Refund()
	}
}

func exhausted(text string, wait time.Duration) error {
	return &ca.Error{Reason: ca.RateLimited, Message: text, RetryAfter: max(wait, time.Second)}
}

func perSecond(every time.Duration) float64 { return 1 / every.Seconds() }
