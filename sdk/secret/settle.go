package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// settle takes the result of an attempt. It ends in one of three ways: failed, postponed,
// or issued.
func (l *leaf) settle(a *attempt) {
	if a != l.flight {
		return // released or superseded meanwhile
	}
	sent := l.sentTo(a.by)
	l.flight, sent.order, sent.refused = nil, a.order, a.refused
	if a.err == nil {
		l.tries = 0
	}
	switch {
	case a.err != nil:
		l.fail(a)
	case a.chain == nil:
		l.postpone(a)
	default:
		l.issued(a)
	}
}

// issued takes a verified certificate, to be served when it begins.
func (l *leaf) issued(a *attempt) {
	l.at, l.sentTo(a.by).away = 0, time.Time{}
	l.reportName(a)
	l.reportCut(a)
	l.next, l.failure = a, nil
	l.forgetOrders()
	term := termOf(a.item)
	term.Begins = l.hold(a, l.now())
	l.rotation.Issued(term)
}

func termOf(item *Item) rotation.Term {
	return rotation.Term{Begins: item.NotBefore, Renew: item.RenewAt, Ends: item.NotAfter}
}

// reportName reports a name that the authority chose itself, as it may.
func (l *leaf) reportName(a *attempt) {
	chain := a.chain
	if chain.Identity.Equal(l.spec.Identity) {
		return
	}
	l.log.Warn("authority signed a different name than requested", "authority", a.by.Name, "asked", l.spec.Identity.String(), "got", text.Clean(chain.Identity.String()))
	l.emit(a.by, Event{Kind: NameDiffers})
}

// reportCut reports a certificate that an authority's own end cuts short: it ends with the
// first certificate above it, or was issued to end with that, before its time.
func (l *leaf) reportCut(a *attempt) {
	above := a.chain.EndsAbove
	late := a.chain.Leaf.NotAfter
	if asked := a.began.Add(l.spec.TTL); l.spec.TTL > 0 && asked.After(late) {
		late = asked
	}
	if !above.Add(time.Minute).Before(late) || a.chain.Leaf.NotAfter.Add(time.Minute).Before(above) {
		return
	}
	l.log.Warn("authority ends before the certificate should, and cuts it short", "authority", a.by.Name, "authority_ends", above, "not_after", a.chain.Ends)
	l.emit(a.by, Event{Kind: CutShort, NotAfter: a.chain.Ends})
}

// fail records the error and schedules the next attempt. The held certificate stays.
func (l *leaf) fail(a *attempt) {
	now, err := l.now(), a.err
	wait := l.passOn(a, l.rotation.Failed(rotation.Now(now), err))
	l.rotation.RetryIn(rotation.Now(now), wait)
	if endsOrder(err) {
		l.sentTo(a.by).order = nil
	}
	l.failure = newFailure(err, now, wait)
	if a.by == l.signer() {
		l.roots.seen = a.seen // roots may have come meanwhile
	}
	if l.failure.pending() {
		l.log.Info("the authority has not decided on the request yet", l.failureAttrs(a)...)
	} else {
		l.log.Warn("cannot renew certificate", l.failureAttrs(a)...)
	}
	l.emit(a.by, l.failure.Event())
}

func (l *leaf) failureAttrs(a *attempt) []any {
	attrs := []any{"authority", a.by.Name, "reason", l.failure.Reason, "error", l.failure.Text, "next_try", l.failure.NextTry}
	if l.held != nil {
		attrs = append(attrs, "held_until", l.held.Ends)
	}
	return attrs
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
	l.at, l.kicked = 0, true
	l.askSilentAgain()
	l.rotation.Kick()
	l.credential = l.credential.kicked()
	l.lookForToken()
}

// release drops the held certificate and the attempt in flight.
func (l *leaf) release() {
	l.abandon()
	l.at, l.next, l.untilRoot = 0, nil, false
	l.holding = holding{by: l.by}
	l.forgetOrders()
	l.failure, l.credential, l.advising.advice = nil, credential{}, nil
	l.rotation.Release()
	l.item.Store(nil)
	l.keeper.forget(RecordOf(l.name))
	for _, a := range l.authorities {
		a.forget(l)
	}
}

// abandon forgets the attempt in flight.
func (l *leaf) abandon() {
	if l.flight != nil {
		l.flight.cancel()
	}
	l.flight = nil
	l.rotation.Abandon()
}
