package ra

import (
	"context"
	"crypto/x509"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/ra/internal/rootphase"
	"github.com/countersign-dev/countersign/ra/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// authority is a CA with what waits for it. The engine's lock guards what changes.
type authority struct {
	engine *Engine
	conf   Authority
	wake   chan struct{}

	queue *schedule.Queue
	slots []slotState
	stops stops
	held  time.Time // monotonic: nothing is asked before, as its root is new
	why   error
	early *x509.Certificate // that root, or nil

	back    time.Duration // by how much it backdates
	met     bool          // it has answered with a certificate, so that is known
	began   time.Time     // when a call began with no other in flight
	phases  *rootphase.Machine
	clock   rootphase.Clock // by which the phases go
	behind  []string        // clusters that no new root waits for, sorted
	shown   *pki.Bundle     // the bundle that RootsChanged was last told
	given   *pki.Bundle     // the roots of the last reply that had others than the one before
	mute    bool            // they are all that it tells
	parsed  atomic.Pointer[parsedRoots]
	heard   chan struct{} // closed once roots are known, or will not be told apart from replies
	once    sync.Once     // closes heard
	dirty   bool          // the record changed
	useless error         // why it cannot be used, if it cannot
	synced  time.Time     // monotonic: when the common record was read last
	changed chan struct{} // wakes learn

	asks    call.Turn // for CheckAbilities
	feed    call.Turn // for RootSource and RootWatcher
	records call.Turn // for the Store
}

// slot is the place of a call in flight. One whose client ignores its context keeps it, and
// one of its tenant's.
type slot int

type slotState struct {
	busy bool
	turn call.Turn
	hung *schedule.Item // whose call is settled, while its client has not returned
}

func newAuthority(e *Engine, conf Authority) *authority {
	a := &authority{
		engine: e, conf: conf, wake: make(chan struct{}, 1), queue: schedule.New(conf.Limits.schedule()),
		slots: make([]slotState, conf.Limits.InFlight), stops: stops{}, heard: make(chan struct{}), changed: make(chan struct{}, 1),
		asks: call.NewTurn(), feed: call.NewTurn(), records: call.NewTurn(),
	}
	for i := range a.slots {
		a.slots[i].turn = call.NewTurn()
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
	s, free := a.slot()
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
	if share := a.conf.Share(); share > 0 { // not if it is no number
		return min(share, 1)
	}
	return 0
}

// aloneFor is how long the first call goes alone. An answer takes no longer as a rule, and a call
// that hangs must not delay others for as long as it does.
const aloneFor = 3 * time.Second

// alone returns how long the call in flight still goes alone, if it does. Where a door counts the
// backdating as lifetime, the first call goes alone: all that were in flight before its answer would
// cost two certificates each.
func (a *authority) alone(now time.Time) time.Duration {
	if !a.engine.doors.Load().strict || a.met || !a.calling() {
		return 0
	}
	return a.began.Add(aloneFor).Sub(now)
}

// calling reports whether a call is in flight.
func (a *authority) calling() bool {
	return slices.ContainsFunc(a.slots, func(s slotState) bool { return s.busy })
}

// slot returns a place for a call.
func (a *authority) slot() (slot, bool) {
	for i, s := range a.slots {
		if !s.busy && s.hung == nil {
			return slot(i), true
		}
	}
	return 0, false
}

// vacate frees the slot of a call that is settled, once its client has returned. The lock is
// held.
func (a *authority) vacate(s slot, i *schedule.Item) {
	if a.slots[s].busy = false; len(a.slots[s].turn) > 0 {
		a.slots[s].hung = i
		a.queue.Hang(i)
	}
}

// returned takes the slot back from a client that had kept it.
func (a *authority) returned(s slot) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if hung := a.slots[s].hung; hung != nil && len(a.slots[s].turn) == 0 {
		a.slots[s].hung = nil
		a.queue.Returned(hung, time.Now())
		a.poke()
	}
}

// closed returns why an order may not be tried now, or nil.
func (a *authority) closed(o *Order, now time.Time) error {
	if left := a.held.Sub(now); left > 0 {
		err := ca.Errorf(ca.Unavailable, "authority %q: %v", a.conf.Name, a.why)
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
// CSR says. It may change with the provider, so it is asked each time; the answer comes from
// memory.
func (a *authority) certifies(ctx context.Context, run func(job func()), turn call.Turn) error {
	client, ok := a.conf.Client.(ca.NameCertifier)
	if !ok {
		return ca.ErrUnimplemented
	}
	_, err := call.In(ctx, run, a.conf.Timeout, turn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.CertifiesNames(ctx)
	})
	return err
}
