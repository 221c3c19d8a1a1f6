package pluginhost

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// mostSilent is how many of its settings in a row a healthy provider may leave unanswered:
// its CA may do the same to it.
const mostSilent = 3

// longestWord bounds the retry-after of a CA that is away.
const longestWord = 10 * time.Minute

// prepare makes a life ready for calls. Settings that an earlier life of the plan took are not
// validated again.
func (s *Provider) prepare(ctx context.Context, l *life) error {
	if err := s.greet(ctx, l); err != nil {
		return err
	}
	resolve := func(ctx context.Context, l *life) error {
		return traced(ctx, "resolve", func(ctx context.Context) error { return s.resolve(ctx, l) })
	}
	if err := s.await(ctx, l, resolve); err != nil {
		return err
	}
	if !l.plan.ledger.read().taken {
		if err := s.validate(ctx, l); err != nil && !l.plan.ledger.turnDown(l.read, err, false) {
			return err
		}
	}
	return s.await(ctx, l, s.equip)
}

// await repeats a step until its outcome is more than a need to wait.
func (s *Provider) await(ctx context.Context, l *life, step func(context.Context, *life) error) error {
	var waits rotation.Waits
	for silent := 0; ; {
		err := step(ctx, l)
		if err == nil || ca.ActionFor(err) != ca.Wait {
			return err
		}
		if ca.ReasonFor(err) != ca.Deadline {
			silent = 0
		} else if silent++; silent == mostSilent || s.stuck(ctx, l) {
			l.Kill(err)
			return err
		}
		// Its CA or a secret is unavailable: restarting the provider would not help.
		wait := max(waits.Next(restarts), min(ca.RetryAfter(err), longestWord))
		s.log.Warn("provider is not ready yet", "error", text.Clean(err.Error()), "next_try_in", wait)
		s.report(ctx, func() { s.waits(l, err) })
		if l.reload == nil {
			s.tellFirst(nil)
		}
		l.idle.Store(true)
		rotation.Sleep(ctx, wait, clock.Wall, nil)
		if ctx.Err() != nil {
			return err
		}
		l.idle.Store(false)
	}
}

// waits publishes why a life on its way to ready waits. A new plan that waits for its CA makes room
// for a restart of the one in force.
func (s *Provider) waits(l *life, err error) {
	switch {
	case l != s.coming:
	case l.reload == nil:
		s.status.LastError = text.Clean(err.Error())
		s.publish()
	case s.current == nil:
		l.cancel()
	}
}

// stuck reports whether a life that has not answered should make room for another: it is
// not healthy either, or a certificate is due.
func (s *Provider) stuck(ctx context.Context, l *life) bool {
	if left, due := s.left(time.Now()); due && left > 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, healthDeadline)
	defer cancel()
	err := l.Health(ctx)
	return err != nil && ca.ActionFor(err) != ca.Missing
}

// greet connects to the provider and checks its name.
func (s *Provider) greet(ctx context.Context, l *life) (err error) {
	ctx, cancel := s.inTime(ctx, s.opts.StartTimeout)
	defer cancel()
	defer func() {
		if hung := context.Cause(ctx); err != nil && hung != nil {
			err = hung
			l.Kill(hung)
		}
	}()
	if err := traced(ctx, "connect", l.Connect); err != nil {
		return err
	}
	var metadata wire.Metadata
	err = traced(ctx, "metadata", func(ctx context.Context) (err error) {
		metadata, err = l.Metadata(ctx)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("get metadata: %w", err)
	case metadata.Name != l.plan.entry.Provider:
		return fmt.Errorf("provider calls itself %q, want %q", metadata.Name, l.plan.entry.Provider)
	}
	l.secret = s.secretPaths(metadata.SettingsSchema)
	l.addresses, _ = address.Of(metadata.SettingsSchema) // of a malformed schema, none
	return nil
}

// validate has the provider validate the settings and joins all faults into one error.
func (s *Provider) validate(ctx context.Context, l *life) error {
	ctx, cancel := s.inTime(ctx, s.opts.CallTimeout)
	defer cancel()
	var diagnostics []wire.Diagnostic
	err := traced(ctx, "validate", func(ctx context.Context) (err error) {
		diagnostics, err = l.Validate(ctx, l.read.resolved.Settings)
		return l.hide(err)
	})
	if err != nil && ca.ActionFor(err) != ca.Missing {
		return fmt.Errorf("settings: %w", err)
	}
	var faults []string
	for _, d := range diagnostics {
		said := text.WithoutTokens(strings.TrimSpace(d.Summary+" "+d.Detail), l.shown.Values()...)
		if d.Warning {
			s.log.Warn("provider settings", "warning", said, "at", text.WithoutTokens(d.Pointer, l.shown.Values()...))
			continue
		}
		faults = append(faults, said)
	}
	if len(faults) > 0 {
		return ca.Errorf(ca.Invalid, "settings: %s", strings.Join(faults, "; "))
	}
	return nil
}
