package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// offer are settings as they are at one moment.
type offer struct {
	resolved *reference.Resolved
	files    stamps // that they name; looked at first, so that a later change is asked again
}

// offers are the settings of one life: those that it has, and those that it is offered. Which of
// them any life of its plan took or refused is in the plan's [ledger].
type offers struct {
	secret    reference.Paths  // of the settings, once the life has been greeted
	addresses address.Settings // likewise

	read  offer                              // first, to be validated; fixed once the life is ready
	mu    sync.Mutex                         // held while the life is offered settings
	has   atomic.Pointer[reference.Resolved] // what it took last; nil: nothing yet
	again chan struct{}                      // has room for one: offer what it refused again
	shown redact.Secrets                     // what no error may show: the secrets of all offers
	stale string                             // the last warning; for one goroutine at a time
}

func newOffers() offers { return offers{again: make(chan struct{}, 1)} }

// paths returns the files that its settings may name.
func (l *life) paths() []string { return l.plan.files(l.secret) }

// secretPaths returns the secret settings by the provider's schema.
func (s *Provider) secretPaths(schema string) reference.Paths {
	paths, err := reference.SecretPaths(schema)
	if err != nil {
		s.log.Warn("unknown which settings of the provider are secret; references are sent as they are", "error", text.Clean(err.Error()))
	}
	return paths
}

// resolve reads what the references in the settings name. A new binary does not wait for what
// cannot be read just now if an earlier one has read it.
func (s *Provider) resolve(ctx context.Context, l *life) error {
	l.read.files = look(l.paths())
	resolved, err := l.plan.settings.Resolve(ctx, l.secret)
	if err == nil {
		err = l.addAddress(&resolved)
	}
	if good := l.plan.ledger.read().good; err != nil && good != nil && ca.ActionFor(err) == ca.Wait {
		s.log.Warn("cannot read a secret setting, keeping its last value", "error", text.Clean(err.Error()))
		l.receive(good)
		return nil
	}
	if err != nil {
		return err
	}
	l.plan.plain.Do(func() {
		for _, setting := range resolved.Plain {
			s.log.Warn("secret setting in plain text in the configuration; write {file: PATH}, {env: NAME} or {command: [PROGRAM]} instead", "setting", setting)
		}
	})
	s.warnStale(l, resolved)
	l.receive(&resolved)
	return nil
}

// receive takes the settings that were read first.
func (l *life) receive(resolved *reference.Resolved) {
	l.keepSecret(resolved)
	l.read.resolved = resolved
}

// keepSecret keeps the secrets in settings out of the life's output and errors.
func (l *life) keepSecret(resolved *reference.Resolved) {
	l.Hide(resolved.Secrets)
	l.shown.Add(resolved.Secrets...)
}

// addAddress puts the CA's address into the setting that the provider's schema names.
func (l *life) addAddress(resolved *reference.Resolved) error {
	settings, err := l.addresses.Apply(resolved.Settings, l.plan.entry.Address)
	if err != nil {
		return ca.Errorf(ca.Invalid, "address: %w", err)
	}
	resolved.Settings = settings
	return nil
}

// reread returns the settings with the current content of the files.
func (s *Provider) reread(ctx context.Context, l *life) (offer, error) {
	files := look(l.paths())
	next, err := l.plan.settings.Reread(ctx, l.secret)
	if err == nil {
		err = l.addAddress(&next)
		s.warnStale(l, next)
	}
	return offer{&next, files}, err
}

// warnStale logs which secrets cannot be read any more, when that changes.
func (s *Provider) warnStale(l *life, resolved reference.Resolved) {
	stale := ""
	if err := errors.Join(resolved.Stale...); err != nil {
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
func (s *Provider) equip(ctx context.Context, l *life) error {
	now, err := s.reread(ctx, l)
	if err != nil {
		now.resolved = l.read.resolved
	}
	var failed error
	known := l.plan.ledger.read()
	if known.isGood(now) {
		l.plan.ledger.forget()
	}
	for _, o := range known.order(now) {
		err := s.give(ctx, l, o)
		if err == nil {
			if why := l.plan.ledger.read().why(); why != "" {
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

// give offers a life settings. If it does not take them, it has those that it had.
func (s *Provider) give(ctx context.Context, l *life, o offer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepSecret(o.resolved)
	err := s.configure(ctx, l, o.resolved)
	if err == nil {
		l.has.Store(o.resolved)
		l.plan.ledger.take(o)
		return nil
	}
	if l.plan.ledger.read().isGood(o) {
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

// configure sends a life settings; the caller holds l.mu.
func (s *Provider) configure(ctx context.Context, l *life, resolved *reference.Resolved) error {
	ctx, cancel := s.inTime(ctx, s.opts.CallTimeout)
	defer cancel()
	err := traced(ctx, "configure", func(ctx context.Context) error { return l.hide(l.Configure(ctx, resolved.Settings)) })
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return traced(ctx, "ready", func(ctx context.Context) error { return l.hide(l.Ready(ctx)) })
}

// configureAgain sends the settings to a provider that lost them.
func (s *Provider) configureAgain(ctx context.Context, l *life) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Ready(ctx) == nil {
		return nil // another call was faster
	}
	return s.configure(ctx, l, l.has.Load())
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
