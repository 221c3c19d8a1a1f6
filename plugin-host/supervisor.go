package pluginhost

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"time"
)

// supervisor keeps a provider alive. Its goroutine, run, owns its state and starts
// every process; each message to it is a case of its select and a method.
type supervisor struct {
	opts Options
	log  *slog.Logger
	gate gate

	first   chan error   // the first outcome, for Open
	reloads chan *reload // one at a time
	closing chan struct{}
	closed  chan struct{} // closed when nothing is left
	gone    chan struct{} // a life that left is no more

	// What follows is run's own.

	plan     *plan            // what is started when a life ends
	current  *life            // where calls go; nil: there is none
	attempt  *attempt         // the life that is on its way; nil: none is
	restart  <-chan time.Time // when the next is started; nil: not needed
	leaving  int              // lives that are being stopped beside the current one
	number   int              // of the last life that was started
	status   Status           // the gate has a copy
	recovery recovery
	patience context.Context // ends when lives that are leaving have had their time
	hurry    context.CancelFunc
}

// plan is what lives are started from.
type plan struct {
	entry  Entry
	path   string  // of the binary; empty in process
	binary *binary // nil in process
	launch func(number int) (instance, error)
	// proven: a life of it has been ready, so its settings need no second check.
	proven bool
}

// close lets the binary go. Processes that were started of it run on.
func (p *plan) close() {
	if p.binary != nil {
		_ = p.binary.Close()
	}
}

func newSupervisor(opts Options, p *plan) *supervisor {
	s := &supervisor{
		opts: opts, log: opts.Log.With("provider", p.entry.Name), plan: p,
		gate:  gate{changed: make(chan struct{})},
		first: make(chan error, 1), reloads: make(chan *reload),
		closing: make(chan struct{}), closed: make(chan struct{}), gone: make(chan struct{}),
	}
	s.patience, s.hurry = context.WithCancel(context.Background())
	s.status = Status{Name: p.entry.Name, State: Resolved, Since: time.Now()}
	p.describe(&s.status)
	s.gate.status = s.status
	return s
}

func (p *plan) describe(s *Status) {
	s.Provider, s.Path = p.entry.Provider, p.path
	if p.binary != nil {
		s.SHA256 = p.binary.sha256
	}
}

// run starts one life after the other until Close.
//
// It keeps its thread: the parent-death signal of a process is bound to the thread
// that started it, so that thread has to live as long as the process. It is not
// unlocked, so that no other goroutine runs with what forbidPrivileges took.
func (s *supervisor) run() {
	runtime.LockOSThread()
	defer close(s.closed)
	forbidPrivileges(s.log)
	s.begin(s.plan, nil)
	for {
		select {
		case <-s.closing:
			s.end()
			return
		case r := <-s.reloads:
			s.reload(r)
		case err := <-s.attempt.result():
			s.settle(err)
		case <-s.current.end():
			s.bury()
		case <-s.due():
			s.status.Restarts++
			s.begin(s.plan, nil)
		case <-s.gone:
			s.leaving--
		}
	}
}

// due is when the next life is to be started, if none is on its way already.
func (s *supervisor) due() <-chan time.Time {
	if s.attempt != nil {
		return nil
	}
	return s.restart
}

// settle takes the outcome of the attempt: a life that is ready, or why it is not.
func (s *supervisor) settle(err error) {
	a := s.attempt
	s.attempt = nil
	switch {
	case err == nil:
		s.takeOver(a)
	case a.reload != nil:
		s.turnDown(a, err)
	default:
		s.stop(a.instance)
		s.failed(0, err)
	}
	if a.reload != nil {
		a.reload.reply <- err
	} else {
		s.tellFirst(err)
	}
}

// takeOver sends calls to the new life, and lets the old one go when those in
// flight have ended.
func (s *supervisor) takeOver(a *attempt) {
	old := s.current
	s.restart = nil
	s.current = newLife(a.plan.entry, a.instance, s.opts.MaxCalls)
	go s.askHealth(s.current)
	a.plan.proven = true
	if a.plan != s.plan {
		s.follow(a.plan)
	}
	s.status.Generation, s.status.LastError, s.status.Crash = a.number, "", nil
	a.instance.Describe(&s.status)
	s.enter(Ready)
	if old != nil {
		s.dismiss(old.instance, func() { old.drain(s.patience, s.opts.CallTimeout) })
	}
}

// follow makes a plan whose life is ready the one that lives are started from.
func (s *supervisor) follow(p *plan) {
	s.plan.close()
	s.plan, s.recovery = p, recovery{}
	s.status.Reloads++
	s.status.LastReload = ""
	p.describe(&s.status)
}

// bury notes the end of the current life and when the next one is started.
func (s *supervisor) bury() {
	l := s.current
	s.current = nil
	l.leave()
	s.stop(l.instance)
	s.failed(time.Since(l.since), l.Err())
}

// failed says why there is no life that is ready, and plans the next start.
func (s *supervisor) failed(ready time.Duration, err error) {
	s.status.PID, s.status.LastError = 0, plain(err.Error())
	wait, open := s.recovery.next(time.Now(), ready)
	s.restart, s.status.NextStart = time.After(wait), time.Now().Add(wait)
	if open {
		s.enter(CircuitOpen)
	} else {
		s.enter(Backoff)
	}
}

// enter changes the state, and with it where calls go.
func (s *supervisor) enter(state State) {
	s.status.State, s.status.Since = state, time.Now()
	if state != Backoff && state != CircuitOpen {
		s.status.NextStart = time.Time{}
	}
	s.publish()
	attrs := []any{"state", string(state), "generation", s.status.Generation, "pid", s.status.PID}
	if state == Backoff || state == CircuitOpen {
		s.log.Warn("provider ended", append(attrs, "error", s.status.LastError, "next_start", s.status.NextStart,
			"last_words", strings.Join(s.status.Crash, "\n"))...)
	} else {
		s.log.Info("provider state", attrs...)
	}
}

func (s *supervisor) publish() {
	s.gate.move(s.status, s.current)
	s.opts.OnState(s.status)
}

// stop ends a life and waits until nothing is left of it.
func (s *supervisor) stop(i instance) {
	if i == nil {
		return // it could not even be started
	}
	ctx, cancel := context.WithTimeout(s.patience, s.opts.StopTimeout)
	defer cancel()
	i.Stop(ctx)
	i.Describe(&s.status)
}

// dismiss stops a life beside everything else.
func (s *supervisor) dismiss(i instance, first func()) {
	s.leaving++
	go func() {
		first()
		ctx, cancel := context.WithTimeout(s.patience, s.opts.StopTimeout)
		i.Stop(ctx)
		cancel()
		s.gone <- struct{}{}
	}()
}

// end stops everything. Calls in flight have StopTimeout.
func (s *supervisor) end() {
	last := s.current
	s.current = nil
	s.enter(Draining)
	timer := time.AfterFunc(s.opts.StopTimeout, s.hurry)
	defer timer.Stop()
	s.abandon()
	if last != nil {
		s.dismiss(last.instance, func() { last.drain(s.patience, s.opts.StopTimeout) })
	}
	for ; s.leaving > 0; s.leaving-- {
		<-s.gone
	}
	s.hurry()
	s.plan.close()
	s.status.PID = 0
	s.enter(Stopped)
}
