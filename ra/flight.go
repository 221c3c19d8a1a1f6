package ra

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/ra/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// keep is how long a certificate waits for a caller who went away and asks again.
const keep = time.Minute

// flight is the work for one order, and those who wait for it. The engine's lock guards all
// that changes, but for what fly alone touches.
type flight struct {
	ctx       context.Context // the engine's, with the trace
	order     *Order
	authority *authority
	history   *history
	item      schedule.Item
	begun     time.Time // monotonic: when it was put in line
	callers   int
	started   bool
	probe     *stop     // the stop that it tries, or nil
	pending   time.Time // what the ID is made of while the authority has not decided; zero: now

	landed bool
	early  bool      // its certificate had not begun, and no caller has it
	at     time.Time // monotonic: when it landed; where its certificate had not begun, when it does
	cert   Certificate
	err    error
	taken  bool          // a caller has the certificate
	done   chan struct{} // closed when it has landed
}

// end settles a flight that made no call. The lock is held.
func (e *Engine) end(f *flight, err error) {
	e.refund(f.history, f.order)
	e.settle(f, Certificate{}, err)
}

// settle wakes all callers. What succeeded and was not collected stays for a while.
func (e *Engine) settle(f *flight, cert Certificate, err error) {
	f.landed, f.at, f.cert, f.err = true, time.Now(), cert, err
	if err != nil && e.flights[f.order.base] == f {
		delete(e.flights, f.order.base)
	}
	close(f.done)
}

// waiting returns how many callers wait for a flight; 1 if all have left.
func (e *Engine) waiting(f *flight) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(1, f.callers)
}

// start makes the call for a flight whose turn has come, or ends it. The lock is held.
func (e *Engine) start(f *flight, s slot, now time.Time) {
	a := f.authority
	err := a.closed(f.order, now)
	if err == nil {
		err = f.history.paused(now) // another key of the same holder failed meanwhile
	}
	if err == nil {
		err = e.wanted(f.order)
	}
	if err != nil {
		a.queue.Return(&f.item, now)
		e.end(f, err)
		return
	}
	f.started = true
	f.probe, f.pending = a.stops.begin(f.order), f.history.pending[f.order.base]
	a.fill(s, f, now)
}

// wanted returns an error if the policy in force does not grant the order any more. It is asked
// before the authority is, and before its certificate is given out.
func (e *Engine) wanted(o *Order) error {
	if e.granted(o) {
		return nil
	}
	return ca.Errorf(ca.Aborted, "the policy has changed meanwhile: ask again")
}

// granted reports whether the policy in force decides the same, and the door is there.
func (e *Engine) granted(o *Order) bool {
	if _, there := e.doors.Load().by[o.Door]; !there {
		return false
	}
	p := e.policy.Load()
	if p == o.policy {
		return true
	}
	d, err := p.grant(o)
	return err == nil && d.Rule == o.decision.Rule && d.Authority == o.decision.Authority &&
		d.MaxTTL >= o.ttl && d.Usages == o.decision.Usages && d.Identity.Equal(o.decision.Identity) &&
		checkKey(o.csr.PublicKey, d.KeyTypes) == nil
}

// outcome is what a call brought.
type outcome struct {
	cert     Certificate
	err      error     // for the callers
	answered error     // of the call itself; nil if the authority answered with a certificate
	reach    scope     // of a failed check
	called   bool      // the authority was asked
	signed   bool      // it signed a certificate, which may have been discarded
	hangs    bool      // its client has not returned
	of       time.Time // what the ID of the request was made of
	took     time.Duration
}

// land takes the outcome of a call. The lock is not held.
func (e *Engine) land(f *flight, s slot, out outcome) {
	e.mu.Lock()
	now, wall := time.Now(), e.cfg.Now()
	a := f.authority
	a.vacate(s, &f.item, out.hangs)
	a.back.known = a.back.known || out.called && out.answered == nil
	if out.called {
		a.queue.Done(&f.item, out.answered, now)
	} else {
		a.queue.Return(&f.item, now)
	}
	if out.called {
		f.history.decided(f.order.base, out.answered, out.of)
	}
	stopped := a.stops.settle(f.order, f.probe, out.reach, out.err, now, wall)
	early := e.notYet(out.cert)
	switch {
	case out.err != nil:
		f.history.failed(out.err, now, wall)
	case early == nil:
		f.history.issued(out.cert.Ends)
	}
	if !out.signed {
		e.refund(f.history, f.order)
	}
	e.settle(f, out.cert, toCaller(out.err))
	if early != nil {
		f.keepUntil(early, now)
	}
	e.mu.Unlock()
	a.look()
	if early != nil {
		e.cfg.Log.Warn("a certificate is kept until it begins", "authority", a.conf.Name, "rule", f.order.decision.Rule,
			"subject", f.order.Subject.String(), "error", early)
	}
	if stopped {
		e.cfg.Log.Error("stopped asking the authority for a rule: its replies cannot be given out",
			"authority", a.conf.Name, "rule", f.order.decision.Rule, "error", out.err)
	}
	e.cfg.Observe(Event{
		Authority: a.conf.Name, Rule: f.order.decision.Rule, Result: result(out.err),
		Waited: f.item.Began().Sub(f.begun), Took: out.took,
	})
}
