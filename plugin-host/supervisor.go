package pluginhost

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
)

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
	next    *Plan     // prepared, and to be put in force or dropped; nil: nothing
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

// run starts one life after the other until Close.
//
// It stays on its thread: the parent-death signal of a process is bound to the thread that
// started it, so that thread has to live as long as the process. It does not unlock the
// thread, so that no other goroutine runs without the privileges that ForbidPrivileges
// dropped.
func (s *Provider) run() {
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
func (s *Provider) order(ctx context.Context, do func()) bool {
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
func (s *Provider) report(ctx context.Context, do func()) {
	select {
	case s.orders <- do:
	case <-ctx.Done():
	}
}

// again starts the next life.
func (s *Provider) again() {
	s.status.Restarts++
	s.begin(s.plan, nil)
}

// due returns when to start the next life, unless one is on its way, or is ready to be put in force.
func (s *Provider) due() <-chan time.Time {
	if s.coming != nil || s.next != nil {
		return nil
	}
	return s.restart
}

// enter changes the state and where calls go.
func (s *Provider) enter(state State) {
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

func (s *Provider) publish() {
	s.status.LastSecret = s.plan.ledger.read().why()
	s.gate.move(s.status, s.plan, s.current)
	s.opts.OnState(s.status.clone())
}

// stop ends a life and waits until nothing is left of it.
func (s *Provider) stop(l *life) {
	if l.instance == nil {
		return // the start failed
	}
	ctx, cancel := context.WithTimeout(s.patience, s.opts.StopTimeout)
	defer cancel()
	l.Stop(ctx)
	s.status.take(l.Report())
}

// dismiss stops a life in the background, after first.
func (s *Provider) dismiss(l *life, first func()) {
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
func (s *Provider) end() {
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
	s.plan.close()
	s.status.PID = 0
	s.enter(Stopped)
}
