package pluginhost

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
)

// renewGap is the least time between two configurations by changed files: each may log in to
// the CA.
const renewGap = time.Second

// pause waits, or until calls go elsewhere.
func (l *life) pause(wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-l.leaving.Done():
	case <-l.Ended():
	}
}

// followSecrets configures a life anew when the content of a file changes that its settings
// refer to. It returns when calls go elsewhere.
func (s *Provider) followSecrets(l *life) {
	if len(l.has.Load().Files) == 0 {
		return
	}
	watcher := filewatch.New(s.watch, l.paths()...)
	defer watcher.Close()
	var waits rotation.Waits
	var retry <-chan struct{}
	for due := true; ; {
		if asked, err := s.renew(l, due); asked {
			l.pause(renewGap)
			retry = s.nextOffer(l, &waits, err)
		}
		due = true
		select {
		case <-l.leaving.Done():
			return
		case <-l.Ended():
			return
		case <-watcher.C:
			due = false
		case <-l.again:
		case <-retry:
		}
	}
}

// offerAgain offers a life once more what it refused.
func (l *life) offerAgain() {
	l.plan.ledger.forget()
	select {
	case l.again <- struct{}{}:
	default: // it will be
	}
}

// nextOffer returns when a secret is offered again after err. A refusal by the CA may count
// against an account there.
func (s *Provider) nextOffer(l *life, waits *rotation.Waits, err error) <-chan struct{} {
	if err == nil || l.plan.ledger.read().hopeless() {
		waits.Reset()
		return nil
	}
	wait := waits.After(err, time.Now(), 24*time.Hour, 0) // those before are held
	s.log.Warn("provider did not accept a changed secret, keeping the previous one", "error", text.Clean(err.Error()), "next_try_in", wait)
	return rotation.After(l.leaving, wait, clock.Wall)
}

// renewed publishes that a life has other settings, or refused some. That may end the engine's
// wait, which follows the state.
func (s *Provider) renewed(l *life) {
	if l == s.current {
		s.publish()
	}
}

// renew sends the life its settings if a secret has changed. What no life took is sent again
// when it is due, if that is of use.
func (s *Provider) renew(l *life, due bool) (asked bool, err error) {
	next, err := s.reread(l.leaving, l)
	switch known := &l.plan.ledger; {
	case err != nil || known.read().declines(next, due):
		return false, err
	case same(next.resolved, l.has.Load()):
		if known.forget() {
			s.report(l.leaving, func() { s.renewed(l) })
		}
		return false, nil
	}
	err = s.give(l.leaving, l, next)
	switch {
	case l.leaving.Err() != nil:
		return false, err
	case err == nil:
		s.log.Info("provider accepted a changed secret")
	case l.plan.ledger.read().hopeless():
		s.log.Error("provider refused a changed secret, keeping the previous one", "error", text.Clean(err.Error()))
	}
	s.report(l.leaving, func() { s.renewed(l) })
	return true, err
}
