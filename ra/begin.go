package ra

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// notYet returns why a certificate may not be given out yet, or nil: an authority whose clock is
// ahead of ours makes ones that all peers refuse until they begin. Its RetryAfter is the time until then.
func (e *Engine) notYet(cert Certificate) error {
	left := cert.NotBefore.Sub(e.cfg.Now())
	if left <= 0 {
		return nil
	}
	err := ca.Errorf(ca.Unavailable, "the certificate begins at %s, in %s: compare the clock of authority %q with this machine's",
		clock.Stamp(cert.NotBefore), left.Round(time.Second), cert.Authority)
	err.RetryAfter = left
	return err
}

// keepUntil keeps a certificate until it begins, and the authority from being asked for its holder.
// The lock is held.
func (f *flight) keepUntil(early error, now time.Time) {
	f.early, f.at = true, now.Add(ca.RetryAfter(early))
	f.history.until, f.history.err = f.at, early
}

// collect returns what a flight brought. Where its certificate has not begun, the caller waits if it
// has the time, and else comes back for it.
func (e *Engine) collect(ctx context.Context, f *flight) error {
	early := e.notYet(f.cert)
	if early == nil {
		return e.take(f)
	}
	if e.waitOut(ctx, ca.RetryAfter(early)) && e.notYet(f.cert) == nil {
		if early = e.mayStillGive(f); early == nil {
			return e.take(f)
		}
	}
	e.cfg.Observe(Event{Authority: f.cert.Authority, Rule: f.cert.Rule, Result: ca.ReasonFor(early).String()})
	e.giveBack(f)
	return early
}

// waitOut waits if ctx has a deadline after that. It reports whether the wait is over.
func (e *Engine) waitOut(ctx context.Context, wait time.Duration) bool {
	if end, bounded := ctx.Deadline(); !bounded || time.Until(end) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
	return false
}

// mayStillGive checks what may have changed since the certificate came.
func (e *Engine) mayStillGive(f *flight) error {
	if err := e.wanted(f.order); err != nil {
		return err
	}
	return e.mayGive(f.order, f.cert)
}

// giveBack leaves a certificate for the next call, or records that none can come.
func (e *Engine) giveBack(f *flight) {
	e.mu.Lock()
	lost := e.release(f)
	e.mu.Unlock()
	e.lost(f, lost)
}

// release is for a caller that takes nothing. It reports whether a certificate is lost with that: Close
// may have looked for what is not collected already, or another flight is in its place. The lock is held.
func (e *Engine) release(f *flight) (lost bool) {
	f.callers--
	f.history.callers--
	kept := e.flights[f.order.base] == f
	lost = f.landed && f.err == nil && !f.taken && f.callers == 0 && (e.closed || !kept)
	if lost && kept {
		delete(e.flights, f.order.base)
	}
	return lost
}

// lost records a certificate if it is.
func (e *Engine) lost(f *flight, lost bool) {
	if lost {
		e.uncollected(context.Background(), f)
	}
}

// kept returns the certificate that came for an order, or nil if there is none or the policy is
// another now. The lock is held.
func (e *Engine) kept(o *Order) *flight {
	if f := e.flights[o.base]; f != nil && f.landed && e.granted(f.order) {
		return f
	}
	return nil
}
