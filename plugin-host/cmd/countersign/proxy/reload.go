package proxy

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// job is a reload that takes its time, for one life.
type job struct {
	of    *life
	tells news
	done  chan error
}

// outcome is nil, and so never comes, where there is no job.
func (j *job) outcome() <-chan error {
	if j == nil {
		return nil
	}
	return j.done
}

// now is what a life would read if it were started now. A signal by itself carries no
// locality.
func (p *Proxy) now() news {
	n := news{digest: p.seen}
	if p.cfg.Reload.Signal == 0 || p.cfg.Locality.WriteFile != "" || p.cfg.Locality.Restart {
		n.locality = p.zone()
	}
	return n
}

// outdated tells whether the current life has to be told anything.
func (p *Proxy) outdated() bool {
	l := p.current
	return l != nil && !l.dismissed && !p.stopping && (!p.cfg.Reload.none() || p.misses(l)) && l.knows != p.now()
}

// misses tells whether a life has to be replaced for the locality to reach it.
func (p *Proxy) misses(l *life) bool { return p.cfg.Locality.Restart && l.knows.locality != p.zone() }

// gather lets changes come for a while from the first one on, to be told as one.
func (p *Proxy) gather() {
	if p.gathered == nil && p.outdated() {
		p.gathered = time.After(p.cfg.Watch.MinDelay)
	}
}

// reload tells the current life, if it still has to be told.
func (p *Proxy) reload() {
	l, r := p.current, p.cfg.Reload
	switch {
	case !p.outdated(), p.old != nil, p.job != nil: // the end of the old, or of the job, gathers again
	case p.misses(l):
		p.reloads++
		p.log.Info("replacing the proxy: its locality was found after it had started", "pid", l.PID(), "locality", p.zone())
		l.dismiss(p.cfg.StopTimeout)
	case r.Signal != 0:
		p.told(l, p.now(), l.Signal(r.Signal))
	case r.HotRestart && p.spoilt:
		p.log.Warn("replacing the proxy without hot restart: a failed epoch has made the base ID unusable", "pid", l.PID())
		l.dismiss(p.cfg.StopTimeout)
	default:
		p.prepare(l)
	}
}

// prepare runs the reload command, or looks whether the next epoch has a chance.
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

// finish takes the outcome of a job, unless its life is none any more.
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
	p.told(j.of, j.tells, err)
}

// told notes that a life was told, or that it cannot be; then it is not tried
// again until there is something else to tell.
func (p *Proxy) told(l *life, tells news, err error) {
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

// succeed starts the next epoch beside the current one, which that epoch drains and
// ends.
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

// forget takes note of the end of the predecessor.
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

// fallBack stays with the predecessor of an epoch that ended before it took over.
func (p *Proxy) fallBack(failed *life) {
	p.current, p.old = p.old, nil
	p.current.knows, p.spoilt = failed.knows, true
	p.failedReloads++
	p.lastError = "reload: " + failed.Exit().String()
	p.log.Error("the next epoch of the proxy exited before it took over; the previous one keeps running",
		"epoch", failed.epoch, "reason", failed.Exit().String(), "pid", p.current.PID())
	p.gather()
}

// forward passes a signal on to all that lives.
func (p *Proxy) forward(s os.Signal) {
	for _, l := range []*life{p.current, p.old} {
		if l != nil {
			_ = l.Signal(s) // it may have ended by itself
		}
	}
}

// spawn starts a process: the next epoch after a life, or a fresh one.
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

// fill puts in what stands in braces.
func (p *Proxy) fill(argv []string, pid int) []string {
	filled := make([]string, len(argv))
	known := strings.NewReplacer("{locality}", p.zone(), "{pid}", strconv.Itoa(pid))
	for i, arg := range argv {
		filled[i] = known.Replace(arg)
	}
	return filled
}
