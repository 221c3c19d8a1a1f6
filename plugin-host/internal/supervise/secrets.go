package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// news is what a life reports to run: an error on its way to ready, or, with nil, new
// settings.
type news struct {
	life *life
	err  error
}

func (s *Supervisor) report(ctx context.Context, n news) {
	select {
	case s.news <- n:
	case <-ctx.Done():
	}
}

// hear publishes the events of a life. A change of settings may end the engine's wait, as it
// follows the state. A new plan that waits for its CA makes room for a restart of the one in
// force.
func (s *Supervisor) hear(n news) {
	switch {
	case n.err != nil && n.life == s.coming && n.life.reload == nil:
		s.status.LastError = text.Clean(n.err.Error())
		s.publish()
	case n.err != nil && n.life == s.coming && s.current == nil:
		n.life.cancel()
	case n.err == nil && n.life == s.current:
		s.publish()
	}
}

// secretPaths returns the secret settings by the provider's schema.
func (s *Supervisor) secretPaths(schema string) reference.Paths {
	paths, err := reference.SecretPaths(schema)
	if err != nil {
		s.log.Warn("unknown which settings of the provider are secret; references are sent as they are", "error", text.Clean(err.Error()))
	}
	return paths
}

// resolve reads what the references in the settings name. A new binary does not wait for what
// cannot be read just now if an earlier one has read it.
func (s *Supervisor) resolve(ctx context.Context, l *life) error {
	told, err := l.plan.Settings.Resolve(ctx, l.secret)
	if err == nil {
		err = l.addAddress(&told)
	}
	if good := l.plan.ledger.last(); err != nil && good != nil && ca.ActionFor(err) == ca.Wait {
		s.log.Warn("cannot read a secret setting, keeping its last value", "error", text.Clean(err.Error()))
		l.learn(good)
		return nil
	}
	if err != nil {
		return err
	}
	l.plan.plain.Do(func() {
		for _, setting := range told.Plain {
			s.log.Warn("secret setting in plain text in the configuration; write {file: PATH}, {env: NAME} or {command: [PROGRAM]} instead", "setting", setting)
		}
	})
	s.warnStale(l, told)
	l.learn(&told)
	return nil
}

// addAddress puts the CA's address into the setting that the provider's schema names.
func (l *life) addAddress(told *reference.Resolved) error {
	settings, err := l.addresses.Apply(told.Settings, l.plan.Address)
	if err != nil {
		return ca.Errorf(ca.Invalid, "address: %w", err)
	}
	told.Settings = settings
	return nil
}

// reread returns the settings with the current content of the files.
func (s *Supervisor) reread(ctx context.Context, l *life) (offer, error) {
	files := look(l.plan.files(l.secret))
	next, err := l.plan.Settings.Reread(ctx, l.secret)
	if err == nil {
		err = l.addAddress(&next)
		s.warnStale(l, next)
	}
	return offer{&next, files}, err
}

// warnStale logs which secrets cannot be read any more, when that changes.
func (s *Supervisor) warnStale(l *life, told reference.Resolved) {
	stale := ""
	if err := errors.Join(told.Stale...); err != nil {
		stale = text.Clean(err.Error())
	}
	if stale != "" && stale != l.stale {
		s.log.Warn("cannot read a secret setting, keeping its last value", "error", stale)
	}
	l.stale = stale
}

// hide removes the life's secret settings from an error: also those that it had before, and those
// that it is just being offered.
func (l *life) hide(err error) error { return redact.Error(err, l.shown.Values()...) }

// equip sends a life on its way to ready its settings: those of now, or, if it does not take
// them, those that an earlier life took.
func (s *Supervisor) equip(ctx context.Context, l *life) error {
	now, err := s.reread(ctx, l)
	if err != nil {
		now.told = l.told.Load()
	}
	var failed error
	for _, o := range l.plan.ledger.order(now) {
		err := s.give(ctx, l, o)
		if err == nil {
			if why := l.plan.ledger.why(); why != "" {
				s.log.Error("provider rejects its changed secrets, starting with the previous ones", "error", why)
			}
			return nil
		}
		if failed == nil || ca.ActionFor(failed) != ca.Wait && ca.ActionFor(err) == ca.Wait {
			failed = err
		}
	}
	if ctx.Err() == nil && ca.ActionFor(failed) != ca.Wait {
		l.plan.ledger.forget() // none is taken now, so the next life is asked for all
	}
	return failed
}

// give sends a life settings. If it does not take them, it keeps those that it had.
func (s *Supervisor) give(ctx context.Context, l *life, o offer) error {
	l.again.Lock()
	defer l.again.Unlock()
	before := l.learn(o.told)
	err := s.configure(ctx, l)
	if err == nil {
		l.plan.ledger.take(o)
		return nil
	}
	l.told.Store(before)
	if !l.plan.ledger.isOther(o) {
		return err
	}
	ended := l.endsBy(ctx, err)
	if ended {
		err = fmt.Errorf("the provider ended when it got them: %w", l.Err())
	}
	if ended || ctx.Err() == nil {
		l.plan.ledger.turnDown(o, err, ended)
	}
	return err
}

// endsBy reports whether a life does not survive a call that failed. A stream can break a
// moment before its process is known to have ended.
func (l *life) endsBy(ctx context.Context, err error) bool {
	if ca.ActionFor(err) == ca.Wait && ca.ReasonFor(err) != ca.Deadline {
		select {
		case <-l.Ended():
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return process.HasEnded(l)
}

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
func (s *Supervisor) followSecrets(l *life) {
	if len(l.told.Load().Files) == 0 {
		return
	}
	watcher := filewatch.New(s.opts.Watch, l.plan.files(l.secret)...)
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
		case <-l.reconsider:
		case <-retry:
		}
	}
}

// offerAgain offers a life once more what it refused.
func (l *life) offerAgain() {
	l.plan.ledger.forget()
	select {
	case l.reconsider <- struct{}{}:
	default: // it will be
	}
}

// nextOffer returns when a secret is offered again after err. A refusal by the CA may count
// against an account there.
func (s *Supervisor) nextOffer(l *life, waits *rotation.Waits, err error) <-chan struct{} {
	if err == nil || l.plan.ledger.hopeless() {
		waits.Reset()
		return nil
	}
	wait := waits.After(err, time.Now(), 24*time.Hour, 0) // those before are held
	s.log.Warn("provider did not accept a changed secret, keeping the previous one", "error", text.Clean(err.Error()), "next_try_in", wait)
	return rotation.After(l.leaving, wait, clock.Wall)
}

// renew sends the life its settings if a secret has changed. What no life took is sent again
// when it is due, if that is of use.
func (s *Supervisor) renew(l *life, due bool) (asked bool, err error) {
	next, err := s.reread(l.leaving, l)
	switch known := &l.plan.ledger; {
	case err != nil || known.declines(next, due):
		return false, err
	case same(next.told, l.told.Load()):
		if known.forget() {
			s.report(l.leaving, news{life: l})
		}
		return false, nil
	}
	err = s.give(l.leaving, l, next)
	switch {
	case l.leaving.Err() != nil:
		return false, err
	case err == nil:
		s.log.Info("provider accepted a changed secret")
	case l.plan.ledger.hopeless():
		s.log.Error("provider refused a changed secret, keeping the previous one", "error", text.Clean(err.Error()))
	}
	s.report(l.leaving, news{life: l})
	return true, err
}
