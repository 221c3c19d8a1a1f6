package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const (
	healthDeadline = 5 * time.Second
	healthMisses   = 3
)

var errClosing = errors.New("the host closes it")

// supervisor keeps a provider alive. Its goroutine, run, owns its state and starts
// every process.
type supervisor struct {
	opts   Options
	entry  Entry
	launch func(number int) (instance, error)
	log    *slog.Logger
	gate   gate

	first   chan error    // the first outcome, for Open
	closing chan struct{} // closed by Close
	closed  chan struct{} // closed when nothing is left

	status   Status // run's own; the gate has a copy
	recovery recovery
}

func newSupervisor(opts Options, entry Entry, launch func(int) (instance, error)) *supervisor {
	s := &supervisor{
		opts: opts, entry: entry, launch: launch, log: opts.Log.With("provider", entry.Name),
		gate: gate{changed: make(chan struct{})}, first: make(chan error, 1),
		closing: make(chan struct{}), closed: make(chan struct{}),
	}
	s.status = Status{Name: entry.Name, Provider: entry.Provider, State: Resolved, Since: time.Now()}
	s.gate.status = s.status
	return s
}

// run starts one life after the other until Close.
//
// It keeps its thread: the parent-death signal of a process is bound to the thread
// that started it, so that thread has to live as long as the process.
func (s *supervisor) run() {
	runtime.LockOSThread()
	defer close(s.closed)
	defer s.enter(Stopped, nil)
	for number := 1; ; number++ {
		ready, err := s.live(number)
		if errors.Is(err, errClosing) {
			return
		}
		s.tellFirst(err)
		s.status.PID, s.status.LastError = 0, plain(err.Error())
		wait, open := s.recovery.next(time.Now(), ready)
		s.status.NextStart = time.Now().Add(wait)
		state := Backoff
		if open {
			state = CircuitOpen
		}
		s.enter(state, nil)
		if !s.pause(wait) {
			return
		}
	}
}

func (s *supervisor) tellFirst(err error) {
	select {
	case s.first <- err:
	default: // Open has its answer
	}
}

// pause waits; it is false where Close came first.
func (s *supervisor) pause(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
		return false
	}
}

// enter changes the state; l is where calls go from now on.
func (s *supervisor) enter(state State, l *life) {
	s.status.State, s.status.Since = state, time.Now()
	if state != Backoff && state != CircuitOpen {
		s.status.NextStart = time.Time{}
	}
	s.gate.move(s.status, l)
	attrs := []any{"state", string(state), "generation", s.status.Generation, "pid", s.status.PID}
	if state == Backoff || state == CircuitOpen {
		s.log.Warn("provider ended", append(attrs, "error", s.status.LastError, "next_start", s.status.NextStart,
			"last_words", strings.Join(s.status.Crash, "\n"))...)
	} else {
		s.log.Info("provider state", attrs...)
	}
	s.opts.OnState(s.status)
}

// live runs one life, from its start to its end, and returns how long it was ready
// and why it ended.
func (s *supervisor) live(number int) (ready time.Duration, err error) {
	s.status.Generation = number
	s.enter(Starting, nil)
	i, err := s.launch(number)
	if err != nil {
		return 0, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
		defer cancel()
		i.Stop(ctx)
		i.Describe(&s.status)
	}()
	i.Describe(&s.status)
	s.enter(Configuring, nil)
	if err := s.prepared(i); err != nil {
		return 0, err
	}
	l := newLife(number, i, s.opts.MaxCalls)
	i.Describe(&s.status)
	s.status.LastError, s.status.Crash = "", nil
	s.enter(Ready, l)
	s.tellFirst(nil)
	since := time.Now()
	err = s.watch(l)
	return time.Since(since), err
}

// prepared runs prepare beside the events that make it pointless.
func (s *supervisor) prepared(i instance) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.prepare(ctx, i) }()
	select {
	case err := <-done:
		if err != nil && ended(i) {
			return i.Err() // says more than the broken call
		}
		return err
	case <-i.Ended():
		cancel()
		<-done //nolint:errcheck // it was about a life that is over
		return i.Err()
	case <-s.closing:
		cancel()
		<-done //nolint:errcheck // it was about a life that is over
		return errClosing
	}
}

// connector is an instance that has to be reached first.
type connector interface {
	connect(ctx context.Context) error
}

// prepare makes a life ready to be called.
func (s *supervisor) prepare(ctx context.Context, i instance) error {
	if err := s.greet(ctx, i); err != nil {
		return err
	}
	if err := s.validate(ctx, i); err != nil {
		return err
	}
	wait := firstBackoff
	for {
		err := s.configure(ctx, i)
		if err == nil || ca.ActionFor(err) != ca.Wait {
			return err
		}
		// Its CA is away: the provider is not to blame and not started again.
		s.log.Warn("provider is not ready yet", "error", plain(err.Error()), "next_try_in", wait)
		s.tellFirst(nil)
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = double(wait, firstBackoff, maxBackoff)
	}
}

// greet reaches the provider and hears who it is.
func (s *supervisor) greet(ctx context.Context, i instance) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout, fmt.Errorf("it did not get through its start within %s", s.opts.StartTimeout))
	defer cancel()
	if c, ok := i.(connector); ok {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	metadata, err := i.Metadata(ctx)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("ask what it is: %w", err)
	case metadata.Name != s.entry.Provider:
		return fmt.Errorf("it calls itself %q; %q was started", metadata.Name, s.entry.Provider)
	}
	return nil
}

// validate has the settings checked, and makes one error of all their faults.
func (s *supervisor) validate(ctx context.Context, i instance) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CallTimeout)
	defer cancel()
	diagnostics, err := i.Validate(ctx, s.entry.Settings)
	if err != nil && ca.ActionFor(err) != ca.Missing {
		return fmt.Errorf("settings: %w", err)
	}
	var faults []string
	for _, d := range diagnostics {
		text := strings.TrimSpace(d.Summary + " " + d.Detail)
		if d.Warning {
			s.log.Warn("provider settings", "warning", text, "at", d.Pointer)
			continue
		}
		faults = append(faults, text)
	}
	if len(faults) > 0 {
		return ca.Errorf(ca.Invalid, "settings: %s", strings.Join(faults, "; "))
	}
	return nil
}

func (s *supervisor) configure(ctx context.Context, i instance) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CallTimeout)
	defer cancel()
	if err := i.Configure(ctx, s.entry.Settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return i.Ready(ctx)
}

// configureAgain gives the settings to a provider that lost them.
func (s *supervisor) configureAgain(ctx context.Context, l *life) error {
	l.again.Lock()
	defer l.again.Unlock()
	if l.Ready(ctx) == nil {
		return nil // somebody else was faster
	}
	return s.configure(ctx, l)
}

// watch waits for the end of a life that is ready.
func (s *supervisor) watch(l *life) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.askHealth(ctx, l)
	select {
	case <-l.Ended():
		close(l.leaving)
		return l.Err()
	case <-s.closing:
	}
	s.enter(Draining, nil)
	ctx, cancel = context.WithTimeout(ctx, s.opts.StopTimeout)
	defer cancel()
	l.drain(ctx)
	return errClosing
}

// askHealth kills a life that does not answer: one that was stopped (SIGSTOP) or
// hangs for good is no better than one that ended.
func (s *supervisor) askHealth(ctx context.Context, l *life) {
	ticker := time.NewTicker(s.opts.HealthInterval)
	defer ticker.Stop()
	misses := 0
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := s.health(ctx, l)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || ca.ActionFor(err) == ca.Missing:
			misses = 0
			continue
		}
		misses++
		s.log.Warn("provider does not answer", "misses", misses, "error", plain(err.Error()))
		if misses == healthMisses {
			l.Kill(fmt.Errorf("it missed %d health checks: %w", misses, err))
			return
		}
	}
}

func (s *supervisor) health(ctx context.Context, l *life) error {
	ctx, cancel := context.WithTimeout(ctx, min(healthDeadline, s.opts.HealthInterval))
	defer cancel()
	return l.Health(ctx)
}

// resident is an instance without a process.
type resident struct {
	wire.Provider
	ended chan struct{}
}

func newResident(p wire.Provider) *resident { return &resident{p, make(chan struct{})} }

func (r *resident) Ended() <-chan struct{}       { return r.ended }
func (r *resident) Err() error                   { return errClosing }
func (r *resident) Health(context.Context) error { return nil }
func (r *resident) Kill(error)                   {}

// Stop closes the provider where it can be closed.
func (r *resident) Stop(context.Context) {
	if c, ok := r.Provider.(interface{ Close() error }); ok {
		_ = c.Close()
	}
}

// Describe implements instance.
func (r *resident) Describe(s *Status) {
	s.Authentication = InHost
	s.Metadata, _ = r.Metadata(context.Background())
}
