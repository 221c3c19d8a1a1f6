package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// settle takes the result of an attempt.
func (l *leaf) settle(a *attempt) {
	if a != l.flight {
		return // released or superseded meanwhile
	}
	l.flight, l.order = nil, a.order
	if a.err != nil {
		l.fail(a)
		return
	}
	if a.chain == nil {
		l.postpone(a)
		return
	}
	l.at, a.by.away = 0, time.Time{}
	l.reportName(a)
	l.next, l.order, l.failure, l.again = a, nil, nil, false
	l.pause = pause{}
	if !l.stray.lost { // otherwise a loss right after this must wait longer
		l.retry.reset()
	}
}

// reportName reports a name that the authority chose itself, as it may.
func (l *leaf) reportName(a *attempt) {
	chain := a.chain
	if chain.Identity.Equal(l.spec.Identity) {
		return
	}
	l.log.Warn("authority signed a different name than requested", "authority", a.by.Name, "asked", l.spec.Identity.String(), "got", text.Clean(chain.Identity.String()))
	l.tell(a.by.authority, Event{Type: NameDiffers})
}

// fail records the error and schedules the next attempt. The held certificate stays.
func (l *leaf) fail(a *attempt) {
	now, err := l.now(), a.err
	wait := l.passOn(a, l.retry.after(err, l.life(now)))
	if l.again { // the cause may be gone: see kick
		wait, l.again = 0, false
		l.retry.reset()
	}
	if endsOrder(err) {
		l.order = nil
	}
	l.pause = newPause(wait, now)
	l.failure = newFailure(err, now, wait)
	l.log.Warn("cannot renew certificate", l.failureAttrs(a)...)
	l.tell(a.by.authority, Event{Type: Failed, Reason: l.failure.Reason, Failure: l.failure})
}

func (l *leaf) failureAttrs(a *attempt) []any {
	attrs := []any{"authority", a.by.Name, "reason", l.failure.Reason, "error", l.failure.Text, "next_try", l.failure.NextTry}
	if l.held != nil {
		attrs = append(attrs, "held_until", l.held.Leaf.NotAfter)
	}
	return attrs
}

// life returns the remaining life of the held certificate, zero if none is held.
func (l *leaf) life(now time.Time) time.Duration {
	if l.held == nil {
		return 0
	}
	return max(0, l.held.Leaf.NotAfter.Sub(now))
}

// endsOrder reports whether the next attempt needs a new order. It does after an invalid
// reply, too: an authority that recognizes the repeat would send it again.
func endsOrder(err error) bool {
	if _, wrong := errors.AsType[*pki.CheckError](err); wrong {
		return true
	}
	switch ca.ActionFor(err) {
	case ca.EndAttempt, ca.RefreshToken, ca.Missing:
		return true
	}
	return false
}

// kick retries at once, as the token, settings or provider have changed.
func (l *leaf) kick() {
	l.at = 0
	l.retry.reset()
	l.pause = pause{}
	l.credential = l.credential.kicked()
	l.again = l.flight != nil
}

// release drops the held certificate and the attempt in flight.
func (l *leaf) release() {
	if l.flight != nil {
		l.flight.cancel()
	}
	l.at, l.flight, l.order, l.next, l.held = 0, nil, nil, nil, nil
	l.failure, l.pause, l.stray, l.credential = nil, pause{}, stray{}, credential{}
	l.retry.reset()
	l.released, l.restored = true, false
	l.item.Store(nil)
	l.keeper.forget(secretRecord(l.spec.Name))
}

// do runs f in run and returns when f is done. It does nothing once run has ended.
func (l *leaf) do(f func()) {
	done := make(chan struct{})
	select {
	case l.inbox <- func() { defer close(done); f() }:
		<-done
	case <-l.stop:
	}
}
