package proxy

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// loop is the state that the goroutine of Run owns.
type loop struct {
	work     context.Context    // of the helpers and of a job
	cancel   context.CancelFunc // cancels work
	ready    chan struct{}      // closed when the proxy may start
	digests  chan string        // of the watched folders, as they change
	located  chan struct{}      // closed when the locality is found
	current  *life              // serves, or is about to
	old      *life              // replaced by current in a hot restart
	restart  <-chan time.Time   // time of the next start; nil for none
	gathered <-chan time.Time   // time of the next reload; nil for none
	job      *job               // the reload in progress; nil for none
	seen     string             // the last digest
	spoilt   bool               // a failed epoch has made the base ID unusable
	stopping bool               // start nothing more
	drained  <-chan struct{}    // closed when a drain is over; nil for none
	endDrain func()             // ends the drain's goroutine
	code     int                // what Run returns
	recovery recovery

	restarts, reloads, failedReloads int

	lastError string
	nextStart time.Time
}

// Run starts the proxy when Ready returns, and keeps it running until it exits for good or
// ctx ends, which drains it first. It returns the exit code, as in a shell, once all
// processes are gone; 0 if the proxy was never started or died of the SIGTERM that Run sent.
//
// It locks its thread: the parent-death signal of a process is bound to the thread that
// started it.
func (p *Proxy) Run(ctx context.Context) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer p.help(ctx)()
	defer func() { p.endDrain() }()
	end := ctx.Done()
	for !p.stopping || p.current != nil || p.old != nil || p.job != nil {
		select {
		case <-end:
			end = nil
			p.stop()
		case <-p.drained:
			p.drained = nil
			p.dismiss()
		case <-p.ready:
			p.ready = nil
			p.begin()
		case <-p.restart:
			p.restarts++
			p.begin()
		case <-p.current.end():
			p.bury()
		case <-p.old.end():
			p.forget()
		case p.seen = <-p.digests:
			p.gather()
		case <-p.located:
			p.located = nil
			p.gather()
		case <-p.gathered:
			p.gathered = nil
			p.reload()
		case err := <-p.job.outcome():
			p.finish(err)
		case s := <-p.cfg.Signals:
			p.forward(s)
		}
	}
	p.enter(Ended)
	return p.code
}

// help starts the helper goroutines and returns a function that stops them.
func (p *Proxy) help(ctx context.Context) (end func()) {
	p.work, p.cancel = context.WithCancel(ctx)
	p.endDrain = func() {}
	p.seen = p.digest()
	ready, digests, tried, located := make(chan struct{}), make(chan string), make(chan struct{}), make(chan struct{})
	p.ready, p.digests, p.located = ready, digests, located
	var helpers sync.WaitGroup
	last := p.seen
	helpers.Go(func() { p.poll(p.work, last, digests) })
	helpers.Go(func() { p.locate(p.work, tried, located) })
	helpers.Go(func() { p.await(p.work, tried, ready) })
	return func() {
		p.cancel()
		helpers.Wait()
	}
}

// await closes ready when the proxy may start.
func (p *Proxy) await(ctx context.Context, tried <-chan struct{}, ready chan<- struct{}) {
	if p.cfg.Ready != nil {
		p.log.Info("waiting for the first secrets before starting the proxy")
		if p.cfg.Ready(ctx) != nil {
			return // ctx ended
		}
	}
	<-tried
	if ctx.Err() == nil {
		close(ready)
	}
}

// begin starts a new proxy.
func (p *Proxy) begin() {
	p.restart, p.nextStart, p.gathered, p.spoilt = nil, time.Time{}, nil, false
	l, err := p.spawn(nil)
	if err != nil {
		p.failed(0, exit{code: cannotStart}, err.Error())
		return
	}
	p.current, p.lastError = l, ""
	p.enter(Running)
	p.log.Info("proxy started", "pid", l.PID())
}

// cannotStart is a shell's exit code for a program that cannot be run.
const cannotStart = 126

// bury handles the end of the current life.
func (p *Proxy) bury() {
	l := p.current
	p.current = nil
	p.leave(l)
	switch {
	case p.stopping:
		p.code = l.orderly()
	case l.dismissed: // it is being replaced
		p.begin()
	case p.old != nil && p.old.Listens():
		p.fallBack(l)
	default:
		p.failed(time.Since(l.since), l.Exit(), l.Exit().String())
	}
	p.publish()
}

// failed schedules a restart, or gives up.
func (p *Proxy) failed(lived time.Duration, e exit, why string) {
	// A predecessor has already handed over its sockets.
	p.old.dismiss(p.cfg.StopTimeout)
	p.lastError = why
	wait, more := p.recovery.next(lived, p.cfg.RestartLimit)
	if p.cfg.Restart == Never || p.cfg.Restart == OnFailure && e.code == 0 || !more {
		p.log.Info("proxy exited, not restarting it", "reason", why, "restarts", p.restarts)
		p.code, p.stopping = e.code, true
		p.cancel()
		p.enter(Stopping)
		return
	}
	p.restart, p.nextStart = time.After(wait), time.Now().Add(wait)
	p.enter(Backoff)
	p.log.Warn("proxy exited, restarting it", "reason", why, "next_start", p.nextStart)
}

// stop dismisses all processes, after a drain where there is one.
func (p *Proxy) stop() {
	if p.stopping {
		return
	}
	p.stopping = true
	p.cancel()
	p.ready, p.restart, p.gathered = nil, nil, nil
	if p.drained = p.drain(); p.drained == nil {
		p.dismiss()
		return
	}
	p.enter(Draining)
	p.log.Info("draining the proxy", "pid", p.current.PID(), "at_most", p.cfg.Drain.Time)
}

// dismiss ends all processes.
func (p *Proxy) dismiss() {
	p.current.dismiss(p.cfg.StopTimeout)
	p.old.dismiss(p.cfg.StopTimeout)
	p.enter(Stopping)
}

// leave releases the resources of a reaped life.
func (p *Proxy) leave(l *life) {
	if l.deadline != nil {
		l.deadline.Stop()
	}
	if l.base != nil && (p.current == nil || p.current.base != l.base) && (p.old == nil || p.old.base != l.base) {
		l.base.remove()
	}
}
