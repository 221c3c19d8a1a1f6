package supervise

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// prepare makes a life ready to be called. Settings that a life of the same binary
// took already are proven, and not checked on their own again.
func (s *Supervisor) prepare(ctx context.Context, l *life, proven bool) error {
	if err := s.greet(ctx, l); err != nil {
		return err
	}
	if !proven {
		if err := s.validate(ctx, l); err != nil {
			return err
		}
	}
	wait := firstBackoff
	for {
		err := s.configure(ctx, l)
		if err == nil || ca.ActionFor(err) != ca.Wait {
			return err
		}
		// Its CA is away: the provider is not to blame and not started again.
		s.log.Warn("provider is not ready yet", "error", text.Clean(err.Error()), "next_try_in", wait)
		if l.reload == nil {
			s.tellFirst(nil)
		}
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return err
		}
		wait = double(wait, firstBackoff, maxBackoff)
	}
}

// greet reaches the provider and hears who it is.
func (s *Supervisor) greet(ctx context.Context, l *life) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout, fmt.Errorf("start timed out after %s", s.opts.StartTimeout))
	defer cancel()
	if err := l.Connect(ctx); err != nil {
		return err
	}
	metadata, err := l.Metadata(ctx)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("get metadata: %w", err)
	case metadata.Name != l.plan.Provider:
		return fmt.Errorf("provider calls itself %q, want %q", metadata.Name, l.plan.Provider)
	}
	return nil
}

// validate has the settings checked, and makes one error of all their faults.
func (s *Supervisor) validate(ctx context.Context, l *life) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CallTimeout)
	defer cancel()
	diagnostics, err := l.Validate(ctx, l.plan.Settings)
	if err != nil && ca.ActionFor(err) != ca.Missing {
		return fmt.Errorf("settings: %w", err)
	}
	var faults []string
	for _, d := range diagnostics {
		text := strings.TrimSpace(d.Summary + " " + d.Detail)
		if d.Warning {
			s.log.Warn("provider settings", "warning", text, "at", d.Pointer)
			continue
		}
		faults = append(faults, text)
	}
	if len(faults) > 0 {
		return ca.Errorf(ca.Invalid, "settings: %s", strings.Join(faults, "; "))
	}
	return nil
}

func (s *Supervisor) configure(ctx context.Context, l *life) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CallTimeout)
	defer cancel()
	if err := l.Configure(ctx, l.plan.Settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return l.Ready(ctx)
}

// configureAgain gives the settings to a provider that lost them.
func (s *Supervisor) configureAgain(ctx context.Context, l *life) error {
	l.again.Lock()
	defer l.again.Unlock()
	if l.Ready(ctx) == nil {
		return nil // somebody else was faster
	}
	return s.configure(ctx, l)
}
