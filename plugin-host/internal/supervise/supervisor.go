package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Options of a supervisor. All fields but Tracer and Watch are required.
type Options struct {
	StartTimeout   time.Duration // from the start to the metadata
	CallTimeout    time.Duration // of a call whose caller set no deadline, and of each Configure
	StopTimeout    time.Duration // until a provider is killed
	HealthInterval time.Duration
	MaxCalls       int          // sent to one provider at once
	OnState        func(Status) // called for each change of state, in order
	// Due reports whether the engine needs this provider for a certificate now, and when
	// the first such certificate ends: the zero time if none is held. Any goroutine may
	// call it.
	Due    func() (end time.Time, due bool)
	Log    *slog.Logger
	Tracer trace.Tracer      // of starts; nil: none
	Watch  filewatch.Options // of the files that settings name; it logs to Log
}

// Supervisor keeps a provider alive. Its goroutine, run, owns its state and starts every
// process. What others want of it are orders; what happens to a life is a case of its select.
type Supervisor struct {
	Client // of the plan in force

	opts Options
	name string // of the entry
	log  *slog.Logger
	gate gate // where calls wait
	messages
	ending

	// The goroutine run owns the rest.

	plan *Plan // what is started when a life ends
	lives
	revival
	status Status // the gate has a copy
}

// messages are what other goroutines send to run, and its answers.
type messages struct {
	first   chan error    // the first outcome, for Start
	orders  chan func()   // to be run by run, one at a time
	waiting atomic.Int32  // calls whose callers wait for an answer, while there is no life
	gone    chan struct{} // a dismissed life has ended
}

// ending is how a supervisor begins and ends.
type ending struct {
	begun    sync.Once // by Start, or by Close if nothing was started
	close    sync.Once // of closing
	closing  chan struct{}
	closed   chan struct{}   // closed when nothing is left
	patience context.Context // ends when dismissed lives have had their time
	hurry    context.CancelFunc
}

// lives are those that have not ended yet.
type lives struct {
	current *life     // where calls go; nil: there is none
	coming  *life     // the one on its way to ready; nil: there is none
	next    *next     // prepared, and to be put in force or dropped; nil: nothing
	leaving int       // dismissed lives that have not ended yet
	number  int       // of the last life that was started
	started time.Time // when it was
}

// revival is when the next life is started.
type revival struct {
	restart  <-chan time.Time // when to look whether it is; nil: not needed
	pause    rotation.Pause   // until then
	altered  <-chan struct{}  // closed when a file of refused settings has changed; nil: none are refused
	rest     func()           // ends the wait for that
	recovery recovery
	refusals refusals
}

// New makes a supervisor that has started nothing yet. It closes the plan, and those that
// replace it.
func New(opts Options, p *Plan) *Supervisor {
	s := &Supervisor{
		opts: opts, name: p.Name, log: opts.Log.With("provider", p.Name), plan: p,
		gate: gate{changed: make(chan struct{}), plan: p},
		messages: messages{
			first: make(chan error, 1), orders: make(chan func()), gone: make(chan struct{}),
		},
		ending:  ending{closing: make(chan struct{}), closed: make(chan struct{})},
		revival: revival{rest: func() {}},
	}
	s.Client = s.Of(nil)
	s.opts.Watch.Log = opts.Log
	s.patience, s.hurry = context.WithCancel(context.Background())
	s.status = p.Status()
	s.status.Since = time.Now()
	s.gate.status = s.status
	return s
}

// Begin starts the provider and returns at once. A life that does not get ready is
// handled alike, whether it is the first or a later one: see [Status].
func (s *Supervisor) Begin() {
	s.begun.Do(func() {
		s.plan.Use()
		go s.run()
	})
}

// Start is Begin for a caller that cannot do without the provider: it returns when the
// first life is ready. If that fails, it closes the supervisor and returns the error. If
// the provider's CA is unavailable, it succeeds and the provider gets ready later. ctx
// bounds Start only.
func (s *Supervisor) Start(ctx context.Context) error {
	s.Begin()
	var err error
	select {
	case err = <-s.first:
	case <-s.closing: // by a concurrent Close
		err = errClosing
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("provider %q: %w", s.name, err)
	}
	return nil
}

// Close rejects new calls, waits up to [Options.StopTimeout] for those in flight, ends the
// process and returns when nothing is left of it. It may be called twice.
func (s *Supervisor) Close() {
	s.close.Do(func() { close(s.closing) })
	s.begun.Do(func() {
		s.end()
		close(s.closed)
	})
	<-s.closed
}

// Status returns the current status.
func (s *Supervisor) Status() Status { return s.gate.read() }

// run starts one life after the other until Close.
//
// It stays on its thread: the parent-death signal of a process is bound to the thread that
// started it, so that thread has to live as long as the process. It does not unlock the
// thread, so that no other goroutine runs without the privileges that ForbidPrivileges
// dropped.
func (s *Supervisor) run() {
	runtime.LockOSThread()
	defer close(s.closed)
	process.ForbidPrivileges(s.log)
	s.begin(s.plan, nil)
	for {
		select {
		case <-s.closing:
			s.end()
			return
		case order := <-s.orders:
			order()
		case err := <-s.coming.result():
			s.settle(err)
		case <-s.current.end():
			s.bury()
		case <-s.due():
			s.wake()
		case <-s.altered:
			s.again()
		case <-s.gone:
			s.leaving--
		}
	}
}

// order has run do something, and waits for it. It is false if the supervisor is closed, or ctx
// ends, before run does it.
func (s *Supervisor) order(ctx context.Context, do func()) bool {
	done := make(chan struct{})
	select {
	case s.orders <- func() { defer close(done); do() }:
		<-done
		return true
	case <-s.closed:
	case <-ctx.Done():
	}
	return false
}

// report is an order by a life, which does not wait for it.
func (s *Supervisor) report(ctx context.Context, do func()) {
	select {
	case s.orders <- do:
	case <-ctx.Done():
	}
}

// again starts the next life.
func (s *Supervisor) again() {
	s.status.Restarts++
	s.begin(s.plan, nil)
}

// due returns when to start the next life, unless one is on its way, or is ready to be put in force.
func (s *Supervisor) due() <-chan time.Time {
	if s.coming != nil || s.next != nil {
		return nil
	}
	return s.restart
}

// enter changes the state and where calls go.
func (s *Supervisor) enter(state State) {
	s.status.State, s.status.Since = state, time.Now()
	if state != Backoff && state != CircuitOpen && state != Refused {
		s.status.NextStart = time.Time{}
	}
	s.publish()
	attrs := []any{"state", string(state), "generation", s.status.Generation, "pid", s.status.PID}
	switch state {
	case Backoff, CircuitOpen:
		s.log.Warn("provider ended", append(attrs, "error", s.status.LastError, "next_start", s.status.NextStart,
			"last_output", strings.Join(s.status.Crash, "\n"))...)
	case Refused:
		s.log.Error("provider refused its settings; a changed configuration or file starts it at once",
			append(attrs, "error", s.status.LastError, "next_start", s.status.NextStart)...)
	default:
		s.log.Info("provider state changed", attrs...)
	}
}

func (s *Supervisor) publish() {
	s.status.LastSecret = s.plan.ledger.read().why()
	s.gate.move(s.status, s.plan, s.current)
	s.opts.OnState(s.status)
}

// stop ends a life and waits until nothing is left of it.
func (s *Supervisor) stop(l *life) {
	if l.Instance == nil {
		return // the start failed
	}
	ctx, cancel := context.WithTimeout(s.patience, s.opts.StopTimeout)
	defer cancel()
	l.Stop(ctx)
	s.status.Take(l.Report())
}

// dismiss stops a life in the background, after first.
func (s *Supervisor) dismiss(l *life, first func()) {
	s.leaving++
	go func() {
		first()
		ctx, cancel := context.WithTimeout(s.patience, s.opts.StopTimeout)
		l.Stop(ctx)
		cancel()
		s.gone <- struct{}{}
	}()
}

// end stops everything. Calls in flight have StopTimeout.
func (s *Supervisor) end() {
	last := s.current
	s.current = nil
	s.enter(Draining)
	timer := time.AfterFunc(s.opts.StopTimeout, s.hurry)
	defer timer.Stop()
	s.abandon()
	s.unprepare()
	s.rest()
	if last != nil {
		s.dismiss(last, func() { last.drain(s.patience, s.opts.StopTimeout) })
	}
	for ; s.leaving > 0; s.leaving-- {
		<-s.gone
	}
	s.hurry()
	s.plan.Close()
	s.status.PID = 0
	s.enter(Stopped)
}
