package ra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Issue gets the certificate for an order. It returns when there is one, when it is
// refused, or when ctx ends. The audit log has a line by then.
//
// An error is a [*ca.Error] and keeps its meaning: Denied and Invalid are final for the
// caller if [Refused] is true, so that they are the engine's own; RateLimited, Unavailable and
// all others are not, and RetryAfter is when to ask again. After [ca.Aborted] the policy decides
// otherwise: prepare the request anew. A caller whose
// ctx ends loses nothing: it keeps its place by its first ask, and a certificate that comes
// meanwhile is kept for a minute. A certificate that begins later, as the authority's clock is ahead,
// is kept until a minute after its begin: its holder gets it by the same order then. Until its begin the
// error is Unavailable, and the authority is not asked for that holder; a ctx with a later deadline
// waits. Where its time was too short for our own limits of the authority, the error is RateLimited.
func (e *Engine) Issue(ctx context.Context, o *Order) (cert Certificate, err error) {
	ctx, span := trace.Begin(ctx, e.cfg.Tracer, "certificate.request")
	defer func() { endRequest(span, o, cert, err) }()
	f, err := e.enter(ctx, o)
	if err != nil {
		e.report(ctx, o, err)
		return Certificate{}, err
	}
	select {
	case <-f.done:
		err = e.collect(ctx, f)
	case <-ctx.Done():
		err = e.leave(ctx, f)
	}
	if err != nil {
		e.missed(ctx, f, err)
		return Certificate{}, err
	}
	return f.cert, nil
}

// enter checks what has changed since the order was prepared, and returns its flight.
func (e *Engine) enter(ctx context.Context, o *Order) (*flight, error) {
	if o.engine != e {
		return nil, ca.Errorf(ca.Invalid, "the order is another engine's")
	}
	for _, check := range []func() error{
		func() error { return o.tooShort },
		func() error { return e.wanted(o) },
		func() error { return e.mayAsk(o) },
		func() error { return e.paused(o) },
		func() error { return e.audit.ready(ctx, e.cfg.Now()) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	f, err := e.join(ctx, o)
	if err == nil {
		f.authority.look()
	}
	return f, err
}

func (e *Engine) paused(o *Order) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept(o) != nil {
		return nil // the authority is not asked
	}
	return e.holders.get(o.holder).paused(time.Now())
}

// report audits a refusal that reached no authority, and counts it. A caller that stops waiting in
// line was not refused: it keeps its place.
func (e *Engine) report(ctx context.Context, o *Order, err error) {
	switch ca.ReasonFor(err) {
	case ca.Denied, ca.Invalid, ca.RateLimited:
		if !errors.Is(err, context.DeadlineExceeded) {
			e.refuse(ctx, o.Request, o.decision, ca.ReasonFor(err), err)
		}
	}
	e.cfg.Observe(Event{Authority: o.decision.Authority, Rule: o.decision.Rule, Result: ca.ReasonFor(err).String()})
}

// join finds the flight of an equal order, or begins one.
func (e *Engine) join(ctx context.Context, o *Order) (*flight, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	h := e.holders.get(o.holder)
	if h.callers >= maxCallers {
		return nil, exhausted(fmt.Sprintf("%d requests of this holder wait already", maxCallers), 5*time.Second)
	}
	f := e.flights[o.base]
	if f == nil || f.landed && e.kept(o) == nil {
		var err error
		if f, err = e.begin(ctx, o, h); err != nil {
			return nil, err
		}
	}
	f.callers++
	f.history.callers++ // another token's of the same subject, if that began the flight
	return f, nil
}

// begin puts a new flight in line. Its trace is that of its first caller.
func (e *Engine) begin(ctx context.Context, o *Order, h *history) (*flight, error) {
	now, wall := time.Now(), e.cfg.Now()
	a := e.authorities[o.decision.Authority]
	if err := a.closed(o, now); err != nil {
		return nil, err
	}
	if err := e.spend(h, o, now); err != nil {
		return nil, err
	}
	if h.asked.IsZero() {
		h.asked = o.firstAsk(wall)
	}
	f := &flight{order: o, authority: a, history: h, done: make(chan struct{}), begun: now, ctx: trace.Into(e.ctx, ctx)}
	f.item.Tenant, f.item.Value = o.Subject.tenant(), f
	f.item.Renewal, f.item.Rank = h.rank()
	f.item.Tried = h.tried
	if old := e.flights[o.base]; old != nil && old.callers == 0 { // its policy has changed
		e.tasks.Go(func() { e.uncollected(e.ctx, old) })
	}
	e.flights[o.base] = f
	if dropped := a.queue.Add(&f.item, now); dropped != nil {
		out := dropped.Value.(*flight)
		e.end(out, a.full(now))
		if out == f {
			return nil, f.err
		}
	}
	return f, nil
}

// take collects what a flight brought, which is over with that.
func (e *Engine) take(f *flight) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.callers--
	f.history.callers--
	f.taken = true
	if e.flights[f.order.base] == f {
		delete(e.flights, f.order.base)
	}
	if f.early {
		f.early = false
		f.history.issued(f.cert.Ends)
	}
	return f.err
}

// missed reports a flight that ended before its turn; land reports all others.
func (e *Engine) missed(ctx context.Context, f *flight, err error) {
	e.mu.Lock()
	started := f.started
	e.mu.Unlock()
	if !started {
		e.report(ctx, f.order, err)
	}
}

// leave ends the wait of one caller. What no caller waits for is dropped, unless the authority
// is working on it.
func (e *Engine) leave(ctx context.Context, f *flight) error {
	lost := false
	defer func() { e.lost(f, lost) }()
	e.mu.Lock()
	defer e.mu.Unlock()
	lost = e.release(f)
	err, now := ca.Errorf(ca.ReasonFor(ctx.Err()), "the caller went away before authority %q had answered: %w", f.authority.conf.Name, ctx.Err()), time.Now()
	if err.Reason == ca.Deadline && !f.started && !f.landed && f.authority.queue.Throttled(&f.item, now) {
		err = ca.Errorf(ca.RateLimited, "timed out waiting for authority %q's rate limit: %w", f.authority.conf.Name, ctx.Err())
	}
	err.RetryAfter = min(max(f.authority.queue.Delay(now), time.Second), time.Minute)
	if f.callers == 0 && !f.started && !f.landed {
		f.authority.queue.Remove(&f.item)
		e.end(f, err)
		f.authority.poke()
	}
	return err
}

// Try returns what a subject would be granted by the policy in force, and why.
func (e *Engine) Try(s Subject, door string) Decision { return e.policy.Load().Try(s, door) }
