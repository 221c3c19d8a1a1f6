// Package schedule rotates many certificates with one goroutine that decides and a bounded number
// that make requests. sdk/identities and sdk/ondemand share it: they keep their entries, what
// may be asked for and with which credential; the package has the deadlines, the order of
// requests, the bound of those in flight, renewal advice and the notices.
//
// When a certificate is due is decided by package internal/rotation, for each [Entry]. An owner
// embeds an Entry in its own type, makes a [Scheduler] with its [Hooks], and calls
// [Scheduler.Schedule] after each change of an entry.
package schedule

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/internal/share"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Entry is one certificate that is rotated. It is small, as there are thousands, and has
// neither a goroutine nor a timer. The lock of the Scheduler guards it.
type Entry struct {
	Item     *secret.Item     // held; nil: nothing, or not in memory
	Next     *secret.Item     // verified but not valid yet
	Rotation rotation.Machine // decides what to do when
	gone     bool             // removed

	due    time.Time // next time to look at it
	rank   time.Time // its place in the request queue
	dueAt  int
	rankAt int
}

// Base returns the Entry itself, for a type that embeds it.
func (e *Entry) Base() *Entry { return e }

// Gone reports whether the entry was removed.
func (e *Entry) Gone() bool { return e.gone }

// Valid reports whether the entry holds a certificate that may be served.
func (e *Entry) Valid(now time.Time) bool { return e.Item != nil && !e.Item.Expired(now) }

// Node is a pointer to a type that embeds an [Entry].
type Node interface {
	comparable
	Base() *Entry
}

// Hooks are the owner's part. They are called with the lock held, Begin excepted, and must not
// block. [Scheduler.Say] queues what has to run without the lock.
type Hooks[E Node] struct {
	// Begin runs at the begin of each round, without the lock. Default: none.
	Begin func()
	// Round runs once in each round. Default: none.
	Round func(now time.Time)
	// Look does what is due for the owner alone. Default: none.
	Look func(e E, now time.Time)
	// Over reports whether an entry is needed no longer; it is then removed.
	Over func(e E, now time.Time) bool
	// Removed takes an entry out of the owner's own lists.
	Removed func(e E)
	// Served reports that e.Item is new.
	Served func(e E, now time.Time)
	// Expired reports that the held certificate expired while it was wanted.
	Expired func(e E)
	// Due returns when to look at the entry next; zero for never. wake is what the rotation
	// asks for.
	Due func(e E, now rotation.Time, wake time.Duration) time.Time
	// Place returns the pool and the queue for an entry that is due, and its rank there; a
	// nil pool makes no request.
	Place func(e E, now time.Time) (p *Pool[E], queue int, rank time.Time)
	// Request returns the request for an entry, or nil to make none now. It calls
	// Rotation.Begin if it returns one.
	Request func(e E, now time.Time) Job
	// Advised reports that the authority's advice moved the renewal. Default: none.
	Advised func(e E, advice *secret.Advice)
}

// Scheduler schedules entries. Its lock guards all state of the owner, too; it is held briefly,
// never over foreign code.
type Scheduler[E Node] struct {
	Context context.Context // ends with Close

	hooks  Hooks[E]
	cancel context.CancelFunc
	clock  func() time.Time
	log    *slog.Logger
	wake   chan struct{}
	tasks  sync.WaitGroup
	offset jumpWatch // owned by run

	mu        sync.Mutex
	deadlines Queue[E] // all entries by due time
	pools     []*Pool[E]
	places    *share.Places // nil: each pool has its own bound only
	notices
}

// New returns a Scheduler without entries; Start starts it. now is the wall clock.
func New[E Node](hooks Hooks[E], now func() time.Time, log *slog.Logger) *Scheduler[E] {
	s := &Scheduler[E]{
		hooks: hooks, clock: now, log: log, wake: make(chan struct{}, 1),
		offset: newJumpWatch(now), deadlines: Queue[E]{by: byDue},
		notices: notices{quiet: map[string]*quiet{}},
	}
	s.Context, s.cancel = context.WithCancel(context.Background()) //nolint:gosec // Close calls it; gosec does not follow the methods of a generic type
	return s
}

// Start starts to schedule.
func (s *Scheduler[E]) Start() { s.tasks.Go(s.run) }

// Close stops all work and waits for it. The entries stay.
func (s *Scheduler[E]) Close() {
	s.Lock()
	s.cancel() // no task is added after it
	s.Unlock()
	s.tasks.Wait()
}

// Go runs f, which Close waits for.
func (s *Scheduler[E]) Go(f func()) { s.tasks.Go(f) }

// Closed reports whether Close was called.
func (s *Scheduler[E]) Closed() bool { return s.Context.Err() != nil }

// Now returns the wall clock without the monotonic reading.
func (s *Scheduler[E]) Now() time.Time { return s.clock().Round(0) }

// Len returns the number of entries.
func (s *Scheduler[E]) Len() int { return s.deadlines.Len() }

// Each calls f with each entry, in no order; f must not change entries.
func (s *Scheduler[E]) Each(f func(E)) {
	for _, e := range s.deadlines.list {
		f(e)
	}
}

// All returns a copy of the entries in no order, safe while they change.
func (s *Scheduler[E]) All() []E { return append([]E(nil), s.deadlines.list...) }

// Nudge wakes the goroutine that schedules.
func (s *Scheduler[E]) Nudge() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// run schedules until Close.
func (s *Scheduler[E]) run() {
	timer := time.NewTimer(Look)
	defer timer.Stop()
	for {
		if s.hooks.Begin != nil {
			s.hooks.Begin()
		}
		timer.Reset(s.tick())
		select {
		case <-s.Context.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// tick does what is due and returns the time until more is.
func (s *Scheduler[E]) tick() time.Duration {
	s.Lock()
	defer s.Unlock()
	before := s.offset.apart
	if s.offset.jumped() {
		s.lookAtAll(s.offset.apart - before)
	}
	now := s.Now()
	for e, ok := s.deadlines.first(); ok && !e.Base().due.After(now); e, ok = s.deadlines.first() {
		s.step(e, now)
	}
	if s.hooks.Round != nil {
		s.hooks.Round(now)
	}
	s.dispatch(now)
	if e, ok := s.deadlines.first(); ok {
		return min(Look, max(e.Base().due.Sub(now), time.Millisecond))
	}
	return Look
}

// dispatch starts requests while workers are free. The pools take turns.
func (s *Scheduler[E]) dispatch(now time.Time) {
	for started := true; started; {
		started = false
		for _, p := range s.pools {
			started = p.dispatch(now) || started
		}
	}
}

// Share bounds the requests in flight of all pools together: see [share.Places]. Call it before the first
// request.
func (s *Scheduler[E]) Share(p *share.Places) { s.places = p }

// lookAtAll reschedules all entries after a clock jump.
func (s *Scheduler[E]) lookAtAll(jump time.Duration) {
	s.Say(func() { s.log.Info("clock jumped, rechecking all deadlines", "by", jump) })
	for _, e := range s.All() {
		s.Schedule(e)
	}
}

// Schedule adds an entry, or reconsiders one that has changed.
func (s *Scheduler[E]) Schedule(e E) {
	if !e.Base().gone {
		s.step(e, s.Now())
		s.Nudge()
	}
}

// LookAt has the entry looked at by then.
func (s *Scheduler[E]) LookAt(e E, at time.Time) { s.deadlines.put(e, at) }

// step does what is due for an entry and sets its next due time.
func (s *Scheduler[E]) step(e E, now time.Time) {
	b, at := e.Base(), rotation.Now(now)
	if s.hooks.Look != nil {
		s.hooks.Look(e, now)
	}
	do := b.Rotation.Step(at)
	if do.Install {
		s.install(e, now)
		do = b.Rotation.Step(at)
	}
	if !b.Rotation.Waiting() {
		b.Next = nil
	}
	if s.hooks.Over(e, now) {
		s.Remove(e)
		return
	}
	if do.ReportExpired {
		s.hooks.Expired(e)
	}
	s.enqueue(e, now, do.Ask)
	if do.Consult {
		s.consult(e, now)
	}
	if due := s.hooks.Due(e, at, do.Wake); due.IsZero() {
		s.deadlines.put(e, now.Add(Look)) // nothing is due, and a look is cheap
	} else {
		s.deadlines.put(e, due)
	}
}

// install serves the certificate that waited to begin.
func (s *Scheduler[E]) install(e E, now time.Time) {
	b := e.Base()
	b.Next.Issued = now
	b.Item, b.Next = b.Next, nil
	s.advisable(e, now)
	s.hooks.Served(e, now)
}

// Issued takes a verified certificate, to serve now or when it becomes valid.
func (s *Scheduler[E]) Issued(e E, item *secret.Item) {
	b := e.Base()
	b.Next = item
	b.Rotation.Issued(TermOf(item))
	s.Schedule(e)
}

// TermOf returns the life of an item.
func TermOf(item *secret.Item) rotation.Term {
	return rotation.Term{Begins: item.NotBefore, Renew: item.RenewAt, Ends: item.NotAfter}
}

// enqueue adds an entry to its request queue, or removes it.
func (s *Scheduler[E]) enqueue(e E, now time.Time, ask bool) {
	switch {
	case !ask:
		s.Dequeue(e)
	case e.Base().rankAt == 0:
		if p, queue, at := s.hooks.Place(e, now); p != nil {
			p.queues[queue].put(e, at)
		}
	}
}

// Dequeue takes an entry out of the request queues; its next step finds its place anew.
func (s *Scheduler[E]) Dequeue(e E) {
	for _, p := range s.pools {
		for i := range p.queues {
			if e.Base().rankAt != 0 {
				p.queues[i].remove(e)
			}
		}
	}
}

// Requeue finds an entry's place in the request queues anew.
func (s *Scheduler[E]) Requeue(e E) {
	s.Dequeue(e)
	s.Schedule(e)
}

// Remove removes an entry. It leaves the key of an item that was served as it is: an embedder
// or a stream may hold the item still, and the garbage collector frees it after them.
func (s *Scheduler[E]) Remove(e E) {
	b := e.Base()
	if b.gone {
		return
	}
	b.gone = true
	s.deadlines.remove(e)
	s.Dequeue(e)
	s.hooks.Removed(e)
	if b.Next != nil {
		clear(b.Next.Key) // it was never given out
	}
}
