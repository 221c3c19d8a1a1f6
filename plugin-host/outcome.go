package pluginhost

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// settle handles the outcome of the life on its way: it is ready, or err is why not.
func (s *Provider) settle(err error) {
	l := s.coming
	s.coming = nil
	switch {
	case err == nil && l.reload != nil:
		l.relax()
		s.next, l.plan.ready = l.plan, l
	case err == nil:
		s.takeOver(l)
	case l.reload != nil:
		s.turnDown(l, err)
	case ca.ReasonFor(err) == ca.Invalid && !l.plan.ledger.read().taken:
		s.stop(l)
		s.refused(l, err)
	default:
		s.stop(l)
		s.failed(l, err)
	}
	if l.reload != nil {
		l.reload.reply <- err
	} else {
		s.tellFirst(err)
	}
}

// takeOver sends new calls to the new life and dismisses the old one when its calls have
// finished.
func (s *Provider) takeOver(l *life) {
	old := s.current
	s.restart = nil
	l.relax()
	l.open(s.opts.MaxCalls)
	s.current = l
	go s.askHealth(l)
	go s.followSecrets(l)
	s.refusals = refusals{}
	s.status.Generation, s.status.LastError, s.status.Crash = l.number, "", nil
	s.status.take(l.Report())
	s.enter(Ready)
	s.tellFirst(nil) // a reload may have come before the first life was ready
	if old != nil {
		s.retire(old)
	}
}

// retire dismisses a life when its calls have finished.
func (s *Provider) retire(l *life) {
	s.dismiss(l, func() { l.drain(s.patience, s.opts.CallTimeout) })
}

// follow replaces the plan in force.
func (s *Provider) follow(p *Plan) {
	s.drop(s.plan)
	s.plan, s.recovery, s.refusals = p, recovery{}, refusals{}
	s.status.Reloads++
	s.status.LastReload = ""
	s.status.Provider, s.status.Path, s.status.SHA256 = p.entry.Provider, p.path, p.sha256
}

// bury handles the end of the current life and schedules the next one.
func (s *Provider) bury() {
	l := s.current
	s.current = nil
	l.leave()
	s.stop(l)
	s.failed(l, l.Err())
}

// refused records that the provider rejects its settings. A reload starts it again, or a file
// that the settings name when it changes; and so does time, as not each refusal is about the
// settings: a proxy in front of a CA that starts replies as to a wrong path.
func (s *Provider) refused(l *life, err error) {
	s.status.PID, s.status.LastError = 0, text.Clean(err.Error())
	s.schedule(time.Now().Add(s.refusals.wait(err, s.left)))
	s.enter(Refused)
	if files := l.paths(); len(files) > 0 {
		altered := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		s.altered, s.rest = altered, cancel
		go s.awaitChange(ctx, files, l.read.files, altered)
	}
}

// awaitChange closes altered once the files are others than before. Files that belong together,
// such as a key and its certificate, have a moment to change all.
func (s *Provider) awaitChange(ctx context.Context, files []string, before stamps, altered chan<- struct{}) {
	watcher := filewatch.New(s.watch, files...)
	defer watcher.Close()
	for look(files).equal(before) {
		select {
		case <-watcher.C:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(renewGap):
		close(altered)
	case <-ctx.Done():
	}
}

// failed records why no life is ready and schedules the next start.
func (s *Provider) failed(l *life, err error) {
	s.status.PID, s.status.LastError = 0, text.Clean(err.Error())
	now := time.Now()
	wait, open := s.recovery.next(now, l.record(now))
	s.schedule(now.Add(wait))
	s.hasten()
	if open {
		s.enter(CircuitOpen)
	} else {
		s.enter(Backoff)
	}
}
