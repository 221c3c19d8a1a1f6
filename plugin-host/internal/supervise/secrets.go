package supervise

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
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

// hear publishes the news of a life. A change of settings may end the engine's wait, as it
// follows the state.
func (s *Supervisor) hear(n news) {
	switch {
	case n.err != nil && n.life == s.coming && n.life.reload == nil:
		s.status.LastError = text.Clean(n.err.Error())
		s.publish()
	case n.err == nil && n.life == s.current:
		s.publish()
	}
}

// secretPaths returns the secret settings by the provider's schema.
func (s *Supervisor) secretPaths(schema string) reference.Paths {
	paths, err := reference.SecretPaths(schema)
	if err != nil {
		s.log.Warn("cannot tell which settings of the provider are secret; references are sent as they are", "error", text.Clean(err.Error()))
	}
	return paths
}

// resolve reads what the references in the settings name.
func (s *Supervisor) resolve(ctx context.Context, l *life) error {
	told, err := l.plan.Settings.Resolve(ctx, l.secret)
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

// reread returns the settings with the current content of the files.
func (s *Supervisor) reread(ctx context.Context, l *life) (reference.Resolved, error) {
	next, err := l.plan.Settings.Reread(ctx, l.secret)
	if err == nil {
		s.warnStale(l, next)
	}
	return next, err
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

// hide removes the life's secret settings from an error.
func (l *life) hide(err error) error {
	if told := l.told.Load(); told != nil {
		return redact.Error(err, told.Secrets...)
	}
	return err
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
	files := l.told.Load().Files
	if len(files) == 0 {
		return
	}
	watcher := filewatch.New(filewatch.Options{Log: s.log}, files...)
	defer watcher.Close()
	var refused map[string]any
	wait := firstBackoff
	for {
		before := l.told.Load()
		again, err := s.renew(l, &refused)
		if err != nil || l.told.Load() != before {
			l.pause(renewGap)
		}
		var retry <-chan time.Time
		if wait = double(wait, firstBackoff, maxBackoff); again {
			s.log.Warn("provider did not take a changed secret, keeping the previous one", "error", text.Clean(err.Error()), "next_try_in", wait)
			retry = time.After(jitter(wait))
		} else {
			wait = firstBackoff
		}
		select {
		case <-l.leaving.Done():
			return
		case <-l.Ended():
			return
		case <-watcher.C:
		case <-retry:
		}
	}
}

// renew sends the life its settings if a secret has changed. again tells to repeat it after a
// while. What the provider has refused is not sent to it twice.
func (s *Supervisor) renew(l *life, refused *map[string]any) (again bool, err error) {
	next, err := s.reread(l.leaving, l)
	if err != nil || reflect.DeepEqual(next.Settings, l.told.Load().Settings) || reflect.DeepEqual(next.Settings, *refused) {
		return false, err
	}
	err = s.configureWith(l, next)
	switch {
	case l.leaving.Err() != nil:
		return false, err
	case err == nil:
		s.log.Info("provider took a changed secret")
		s.report(l.leaving, news{life: l})
		return false, nil
	case ca.ActionFor(err) == ca.Wait:
		return true, err
	}
	*refused = next.Settings
	s.log.Error("provider refused a changed secret, keeping the previous one", "error", text.Clean(err.Error()))
	return false, err
}

// configureWith sends other settings, and keeps the previous ones if they are refused.
func (s *Supervisor) configureWith(l *life, next reference.Resolved) error {
	l.again.Lock()
	defer l.again.Unlock()
	before := l.learn(&next)
	err := s.configure(l.leaving, l)
	if err != nil {
		l.told.Store(before)
	}
	return redact.Error(err, before.Secrets...)
}
