package ra

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/ra/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// authority is a CA with what waits for it. The engine's lock guards what changes. A value below is
// changed by its own methods alone.
type authority struct {
	engine *Engine
	conf   Authority
	wake   chan struct{} // has run look at the queue again

	queue *schedule.Queue
	slots slots
	stops stops
	hold  hold
	back  backdated

	roots  rootState
	record recordState

	asks call.Turn // for CheckAbilities
}

func newAuthority(e *Engine, conf Authority) *authority {
	a := &authority{
		engine: e, conf: conf, wake: make(chan struct{}, 1), queue: schedule.New(conf.Limits.schedule()),
		slots: slots{all: make([]slotState, conf.Limits.InFlight)}, stops: stops{}, roots: rootState{heard: make(chan struct{}), turn: call.NewTurn()}, record: recordState{changed: make(chan struct{}, 1), turn: call.NewTurn()},
		asks: call.NewTurn(),
	}
	if conf.Share != nil {
		a.queue.Divide(0, time.Now()) // an engine that starts again has saved nothing
	}
	return a
}

// poke has run look again.
func (a *authority) poke() { poke(a.wake) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// look starts what may start now. What has to wait for a time is left to run.
func (a *authority) look() {
	if a.dispatch() > 0 {
		a.poke()
	}
}

// run starts calls as the queue allows until the engine is closed.
func (a *authority) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait := a.dispatch(); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-a.engine.ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
	}
}

// dispatch starts what may start now, and returns when to look again; zero for when
// something happens.
func (a *authority) dispatch() time.Duration {
	for {
		// Anew for each call: a process may have been stopped since the last.
		if wait, started := a.next(a.share()); !started {
			return wait
		}
	}
}

// next starts one call, if one may start.
func (a *authority) next(share float64) (wait time.Duration, started bool) {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	s, free := a.slots.free()
	if e.closed || !free {
		return 0, false
	}
	now := time.Now()
	if wait := a.alone(now); wait > 0 {
		return wait, false
	}
	a.queue.Divide(share, now)
	i, wait := a.queue.Next(now)
	if i == nil {
		return wait, false
	}
	e.start(i.Value.(*flight), s, now)
	return 0, true
}

// share returns the part of the limits that is ours now.
func (a *authority) share() float64 {
	if a.conf.Share == nil {
		return 1
	}
	if share := a.conf.Share(); share > 0 { // not if it is NaN
		return min(share, 1)
	}
	return 0
}

// closed returns why an order may not be tried now, or nil.
func (a *authority) closed(o *Order, now time.Time) error {
	if left := a.hold.left(now); left > 0 {
		err := ca.Errorf(ca.Unavailable, "authority %q: %v", a.conf.Name, a.hold.why)
		err.RetryAfter = min(left, heldAgain)
		return err
	}
	return a.stops.closed(o, now)
}

func (a *authority) full(now time.Time) error {
	err := ca.Errorf(ca.RateLimited, "the queue of authority %q is full", a.conf.Name)
	err.RetryAfter = min(max(a.queue.Delay(now), time.Second), 10*time.Minute)
	return err
}

// certifies returns nil if the authority certifies the names of the request, whatever the
// CSR says. The answer may change with the provider, so each call asks; it comes from
// memory.
func (a *authority) certifies(ctx context.Context) (struct{}, error) {
	client, ok := a.conf.Client.(ca.NameCertifier)
	if !ok {
		return struct{}{}, ca.ErrUnimplemented
	}
	return struct{}{}, client.CertifiesNames(ctx)
}
