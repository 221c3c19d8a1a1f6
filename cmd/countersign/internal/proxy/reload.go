package proxy

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// job is a reload in the background, for one life.
type job struct {
	of    *life
	tells news
	done  chan error
}

// outcome returns nil, which blocks forever, if there is no job.
func (j *job) outcome() <-chan error {
	if j == nil {
		return nil
	}
	return j.done
}

// now returns what a life started now would read. A signal carries no locality.
func (p *Proxy) now() news {
	n := news{digest: p.seen}
	if p.cfg.Reload.Signal == 0 || p.cfg.Locality.WriteFile != "" || p.cfg.Locality.Restart {
		n.locality = p.zone()
	}
	return n
}

// outdated reports whether the current life needs a reload.
func (p *Proxy) outdated() bool {
	l := p.current
	return l != nil && !l.dismissed && !p.stopping && (!p.cfg.Reload.none() || p.misses(l)) && l.knows != p.now()
}

// misses reports whether a life must be replaced to get the locality.
func (p *Proxy) misses(l *life) bool { return p.cfg.Locality.Restart && l.knows.locality != p.zone() }

// gather collects changes for a while, from the first one, for one reload.
func (p *Proxy) gather() {
	if p.gathered == nil && p.outdated() {
		p.gathered = time.After(p.cfg.Watch.MinDelay)
	}
}

// reload reloads the current life if it still needs that.
func (p *Proxy) reload() {
	l, r := p.current, p.cfg.Reload
	switch {
	case !p.outdated(), p.old != nil, p.job != nil: // the end of old, or of the job, calls gather again
	case p.misses(l):
		p.reloads++
		p.log.Info("replacing the proxy: its locality was found after it had started", "pid", l.PID(), "locality", p.zone())
		l.dismiss(p.cfg.StopTimeout)
	case r.Signal != 0:
		p.reloaded(l, p.now(), l.Signal(r.Signal))
	case r.HotRestart && p.spoilt:
		p.log.Warn("replacing the proxy without hot restart: a failed epoch has made the base ID unusable", "pid", l.PID())
		l.dismiss(p.cfg.StopTimeout)
	default:
		p.prepare(l)
	}
}

// prepare runs the reload command, or checks that the next epoch can start.
func (p *Proxy) prepare(l *life) {
	j := &job{of: l, tells: p.now(), done: make(chan error, 1)}
	p.job = j
	ctx, cancel := context.WithTimeout(p.work, p.cfg.Reload.Timeout)
	c := command.Program{Args: p.fill(p.cfg.Reload.Command, l.PID()), Env: p.environment()}
	if p.cfg.Reload.HotRestart {
		c.Args = append(p.fill(p.cfg.Command, l.PID()), "--mode", "validate")
	}
	go func() {
		defer cancel()
		err := p.run(ctx, c)
		if err == nil && l.base != nil {
			err = l.base.await(ctx)
		}
		j.done <- err
	}()
}

// finish handles the outcome of a job, unless its life has ended.
func (p *Proxy) finish(err error) {
	j := p.job
	p.job = nil
	if p.stopping || p.current != j.of || j.of.dismissed {
		return
	}
	if err == nil && p.cfg.Reload.HotRestart {
		if err = p.succeed(j.of); err == nil {
			return
		}
	}
	p.reloaded(j.of, j.tells, err)
}

// reloaded records that a life was reloaded, or that it cannot be; the next attempt then waits
// for the next change.
func (p *Proxy) reloaded(l *life, tells news, err error) {
	l.knows = tells
	if err != nil {
		p.failedReloads++
		p.lastError = "reload: " + err.Error()
		p.log.Error("cannot reload the proxy, it keeps running unchanged", "pid", l.PID(), "error", err)
	} else {
		p.reloads++
		p.log.Info("proxy reloaded", "pid", l.PID())
	}
	p.publish()
	p.gather()
}

// succeed starts the next epoch, which drains and stops the current one.
func (p *Proxy) succeed(l *life) error {
	next, err := p.spawn(l)
	if err != nil {
		return err
	}
	p.old, p.current = l, next
	p.publish()
	p.log.Info("started the next epoch of the proxy", "epoch", next.epoch, "pid", next.PID(), "old_pid", l.PID())
	return nil
}

// forget handles the end of the predecessor.
func (p *Proxy) forget() {
	l := p.old
	p.old = nil
	p.leave(l)
	if !l.dismissed {
		p.reloads++
		p.log.Info("the previous epoch has ended", "pid", l.PID(), "exit_code", l.Exit().code)
	}
	p.publish()
	p.gather()
}

// fallBack keeps the predecessor of an epoch that ended before it took over.
func (p *Proxy) fallBack(failed *life) {
	p.current, p.old = p.old, nil
	p.current.knows, p.spoilt = failed.knows, true
	p.failedReloads++
	p.lastError = "reload: " + failed.Exit().String()
	p.log.Error("the next epoch of the proxy exited before it took over; the previous one keeps running",
		"epoch", failed.epoch, "reason", failed.Exit().String(), "pid", p.current.PID())
	p.gather()
}

// forward passes a signal on to all processes.
func (p *Proxy) forward(s os.Signal) {
	for _, l := range []*life{p.current, p.old} {
		if l != nil {
			_ = l.Signal(s) // it may have exited already
		}
	}
}

// spawn starts a process: the next epoch after a life, or a new proxy.
func (p *Proxy) spawn(after *life) (*life, error) {
	l := &life{since: time.Now(), knows: p.now()}
	argv := p.fill(p.cfg.Command, 0)
	if p.cfg.Reload.HotRestart {
		if err := l.follow(after, p.cfg.RuntimeDir); err != nil {
			return nil, err
		}
		argv = append(argv, l.epochFlags(p.cfg.Reload)...)
	}
	var err error
	if l.child, err = p.launch(start{argv: argv, env: p.environment()}); err != nil && after == nil && l.base != nil {
		l.base.remove()
	}
	return l, err
}

// fill replaces the placeholders in braces.
func (p *Proxy) fill(argv []string, pid int) []string {
	filled := make([]string, len(argv))
	known := strings.NewReplacer("{locality}", p.zone(), "{pid}", strconv.Itoa(pid))
	for i, arg := range argv {
		filled[i] = known.Replace(arg)
	}
	return filled
}
