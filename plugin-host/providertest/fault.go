package providertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

func (r *rig) sideBySide(ctx context.Context, s *conformance.Session) error {
	for range 2 {
		probe, err := r.ready(ctx)
		if err != nil {
			return err
		}
		defer probe.Close() // both live until then
		if err := s.SignOnce(ctx, probe); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) stopped(ctx context.Context, s *conformance.Session) error {
	return r.struck(ctx, s, stopSignal)
}

func (r *rig) killed(ctx context.Context, s *conformance.Session) error {
	return r.struck(ctx, s, os.Kill)
}

// struck sends a signal to a process that signs, and has the next one sign.
func (r *rig) struck(ctx context.Context, s *conformance.Session, signal os.Signal) error {
	if signal == nil {
		return conformance.NotRun("this system cannot stop a process")
	}
	p, err := r.supervised(ctx)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // never fails
	before := p.Status()
	stop := signOn(ctx, s, p)
	process, err := os.FindProcess(before.PID)
	if err == nil {
		err = process.Signal(signal)
	}
	stop()
	if err != nil {
		return err
	}
	if err := awaitNext(ctx, p, before.Generation); err != nil {
		return err
	}
	return s.SignOnce(ctx, p)
}

// awaitNext waits for a process after that one.
func awaitNext(ctx context.Context, p *pluginhost.Provider, generation int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if now := p.Status(); now.Generation > generation && now.State == pluginhost.Ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			now := p.Status()
			return fmt.Errorf("no other is ready: it is %s, %s", now.State, now.LastError)
		}
	}
}

// signOn keeps a few requests in flight until stop, and returns when one has come
// back. What becomes of them is not looked at.
func signOn(ctx context.Context, s *conformance.Session, p *pluginhost.Provider) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	back := make(chan struct{}, 1)
	for n := range 8 {
		all.Go(func() {
			time.Sleep(time.Duration(n) * 7 * time.Millisecond) // so that they are not all between two requests at once
			for ctx.Err() == nil {
				once, done := context.WithTimeout(ctx, time.Second)
				_ = s.SignOnce(once, p)
				done()
				select {
				case back <- struct{}{}:
				default:
				}
			}
		})
	}
	<-back
	time.Sleep(10 * time.Millisecond) // into the middle of the next ones
	return func() { cancel(); all.Wait() }
}

// gone waits for the end of a process.
func gone(probe *pluginhost.Probe, within time.Duration) error {
	select {
	case <-probe.Ended():
		return nil
	case <-time.After(within):
		return fmt.Errorf("it is still there after %s", within)
	}
}

func (r *rig) lifelineEnds(ctx context.Context, s *conformance.Session) error {
	probe, err := r.ready(ctx)
	if err != nil {
		return err
	}
	defer probe.Close()
	if _, err := probe.Metadata(ctx); err != nil {
		return err
	}
	if probe.Status().Authentication == pluginhost.AutoMTLS {
		return conformance.NotRun("it is on stock go-plugin (AutoMTLS), which knows no lifeline: the host ends it by SIGTERM, and by Pdeathsig")
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = probe.WatchRoots(calling, func([]byte) error { return nil }) }()
	go func() { _ = s.SignOnce(calling, probe) }()
	probe.EndLifeline()
	return gone(probe, r.lifelineBound)
}

func (r *rig) terminated(ctx context.Context, _ *conformance.Session) error {
	probe, err := r.ready(ctx)
	if err != nil {
		return err
	}
	defer probe.Close()
	process, err := os.FindProcess(probe.Status().PID)
	if err == nil {
		err = process.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return conformance.NotRun("this system has no SIGTERM: %w", err)
	}
	return gone(probe, r.termBound)
}

func (r *rig) reloaded(ctx context.Context, s *conformance.Session) error {
	p, err := r.supervised(ctx)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // never fails
	over := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(over)
		failed <- errors.Join(p.Reload(ctx, r.entry), p.Reload(ctx, r.entry))
	}()
	for {
		if err := s.SignOnce(ctx, p); err != nil {
			<-over
			return errors.Join(err, <-failed)
		}
		select {
		case <-over:
			return <-failed
		default:
		}
	}
}

// dam takes nothing until it is opened.
type dam struct{ opened chan struct{} }

// Write implements [io.Writer].
func (d dam) Write(b []byte) (int, error) {
	<-d.opened
	return len(b), nil
}

// unread has certificates signed while nobody reads what the process writes.
func (r *rig) unread(ctx context.Context, s *conformance.Session) error {
	opts, held := r.opts, dam{make(chan struct{})}
	opts.Stderr = held
	probe, err := r.readyWith(ctx, opts)
	if err != nil {
		close(held.opened)
		return err
	}
	defer probe.Close()
	defer close(held.opened) // or nothing of it would ever end
	for n := range 20 {
		if err := s.SignOnce(ctx, probe); err != nil {
			return fmt.Errorf("after %d: %w", n, err)
		}
	}
	return nil
}
