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
	"github.com/countersign-dev/countersign/sdk/provider/wire"
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
	if stopSignal == nil {
		return conformance.NotRun("this system cannot stop a process")
	}
	opts := r.opts
	opts.HealthInterval = 500 * time.Millisecond // three that are missed are its end
	p, err := pluginhost.Open(ctx, opts, r.entry)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // never fails
	return struck(ctx, s, p, stopSignal)
}

func (r *rig) killed(ctx context.Context, s *conformance.Session) error {
	p, err := r.supervised(ctx)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // never fails
	for range 3 {   // one kill may fall between two requests
		if err := struck(ctx, s, p, os.Kill); err != nil {
			return err
		}
	}
	return nil
}

// struck sends a signal to a process that signs, and has the next one sign.
func struck(ctx context.Context, s *conformance.Session, p *pluginhost.Provider, signal os.Signal) error {
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
	select {
	case <-back:
	case <-ctx.Done():
	}
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
	m, err := probe.Metadata(ctx)
	if err != nil {
		return err
	}
	if probe.Status().Authentication == pluginhost.AutoMTLS {
		return conformance.NotRun("it is on stock go-plugin (AutoMTLS), which has no lifeline: the host ends it by SIGTERM, and by Pdeathsig")
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.SignOnce(ctx, probe); err != nil { // it may have no other token to ask for roots with
		return err
	}
	if m.Has(wire.RootWatcher) { // a call that began later would make the host reconnect, and kill it
		watchOn(calling, probe)
	} else {
		go func() { _ = s.SignOnce(calling, probe) }()
	}
	probe.EndLifeline()
	return gone(probe, lifelineBound)
}

// watchOn starts a watch and waits for its first set.
func watchOn(ctx context.Context, probe *pluginhost.Probe) {
	told, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		_ = probe.WatchRoots(ctx, func([]byte) error { // what comes of it has a check of its own
			select {
			case told <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	select {
	case <-told:
	case <-over:
	case <-time.After(5 * time.Second):
	}
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
	return gone(probe, termBound)
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

// unread has certificates signed while the output of the process is not read.
func (r *rig) unread(ctx context.Context, s *conformance.Session) error {
	opts, held := r.opts, dam{make(chan struct{})}
	opts.Stderr = held
	probe, err := r.readyWith(ctx, opts)
	if err != nil {
		close(held.opened)
		return err
	}
	defer probe.Close()
	defer close(held.opened) // or its goroutines would never end
	for n := range 20 {
		if err := s.SignOnce(ctx, probe); err != nil {
			return fmt.Errorf("after %d: %w", n, err)
		}
	}
	return nil
}
