// Package conformance (for authors of providers) is the test suite for all providers. A Go
// provider's test calls [Run], which checks it as a value and over the in-memory wire protocol;
// `countersign provider test` checks a compiled binary in any language.
//
// Each [Check] has an id, a rule and its reason. Input that only the author can provide
// (a refused name, an expired token) is in the [Kit]; a check without its input is
// reported as not run, not as passed.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Level groups checks by subject.
type Level string

// The levels, in the order they run.
const (
	Behaviour     Level = "behaviour"
	Settings      Level = "settings"
	Sign          Level = "sign"
	Roots         Level = "roots"
	RootWatch     Level = "root-watch"
	TokenExchange Level = "token-exchange"
	RequestNames  Level = "names-from-request"
	Renewal       Level = "renewal-info"
	Revocation    Level = "revocation-source"
	JWTSVID       Level = "jwt-svid"
	WITSVID       Level = "wit-svid" // experimental
)

// Levels returns all levels.
func Levels() []Level {
	return []Level{Behaviour, Settings, Sign, Roots, RootWatch, TokenExchange, RequestNames, Renewal, Revocation, JWTSVID, WITSVID}
}

// Check is one rule.
type Check struct {
	ID    string // such as SIGN-01
	Level Level
	Rule  string // one sentence
	Why   string // one sentence
	// After lists checks that must pass for this one to mean anything.
	After []string
	// Run returns nil if the rule holds, an error from [NotRun] if that cannot be
	// observed, and otherwise what was observed.
	Run func(ctx context.Context, s *Session) error
}

// Checks returns the checks that need no process, in order.
func Checks() []Check {
	return slices.Concat(metadataChecks(), protocolChecks(), settingsChecks(), signChecks(), refusalChecks(),
		faultChecks(), rootChecks(), watchChecks(), tokenChecks(), nameChecks(), renewalChecks(), revocationChecks(), jwtChecks(), witChecks())
}

// Outcome is the outcome of a check.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	Unrun  Outcome = "not run"
)

// Result is the result of one check.
type Result struct {
	ID      string  `json:"id"`
	Level   Level   `json:"level"`
	Outcome Outcome `json:"outcome"`
	Rule    string  `json:"rule"`
	Why     string  `json:"why"`
	Seen    string  `json:"seen,omitempty"` // what was observed instead, or what is missing
	// Needs is the entry of the kit without which the check was not run.
	Needs string        `json:"needs,omitempty"`
	Took  time.Duration `json:"took_ns"`
	// Log is what a process logged during a check that failed: the last lines, a panic whole.
	Log []string `json:"log,omitempty"`
}

type notRunError struct {
	error
	needs string // an entry of the kit
}

func (e notRunError) Unwrap() error { return e.error }

// NotRun returns an error with the reason why a check cannot run here.
func NotRun(format string, args ...any) error { return notRunError{fmt.Errorf(format, args...), ""} }

// needs is NotRun for a missing entry of the kit, which it explains.
func needs(entry, more string) error {
	return notRunError{errors.New("needs " + entry + " in the kit" + more), entry}
}

// Do runs one check. It must not be called concurrently. A failure while the machine stood still
// decides nothing: the check is run again.
func (s *Session) Do(ctx context.Context, c Check) Result {
	begin, logged := time.Now(), s.logging()
	err := s.missing(c)
	if err == nil {
		unopened := s.unopened
		for attempt, stalled := 1, true; stalled; attempt++ {
			stood := s.stalls()
			s.unopened = unopened
			err = s.once(ctx, c)
			if stalled = stood() && attempt < maxAttempts && saysNothing(err); stalled {
				s.closeAll(&s.held)
				s.share() // what was opened late, too
			}
		}
	}
	out := Result{ID: c.ID, Level: c.Level, Outcome: Passed, Rule: c.Rule, Why: c.Why, Took: time.Since(begin)}
	if unrun, ok := errors.AsType[notRunError](err); ok {
		out.Outcome, out.Seen, out.Needs = Unrun, s.clean(unrun.Error()), unrun.needs
	} else if err != nil {
		out.Outcome, out.Seen, out.Log = Failed, s.clean(err.Error()), logged()
	}
	s.outcomes[c.ID] = out
	return out
}

// once runs a check once, and leaves the session fit for the next.
func (s *Session) once(ctx context.Context, c Check) error {
	limited, cancel := context.WithTimeout(ctx, s.Kit.limit())
	defer cancel()
	err := s.firstOpening(c, s.guarded(limited, c))
	s.closeAll(&s.opened)
	s.replaceBroken(ctx, err)
	return err
}

// saysNothing reports whether the result may come from a machine that stood still: a failure, or
// a check that was not run because no answer came in time.
func saysNothing(err error) bool {
	_, unrun := errors.AsType[notRunError](err)
	return err != nil && (!unrun || errors.Is(err, context.DeadlineExceeded))
}

// logging returns a function that returns what the provider logs from now on.
func (s *Session) logging() func() []string {
	if s.Subject.Log == nil {
		return func() []string { return nil }
	}
	logged := s.Subject.Log()
	return func() (lines []string) {
		for _, line := range logged() {
			lines = append(lines, s.clean(line))
		}
		return lines
	}
}

// guarded runs a check and recovers panics of a provider that is a value.
func (s *Session) guarded(ctx context.Context, c Check) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("it panicked: %v", value)
		}
	}()
	return c.Run(ctx, s)
}

func (s *Session) missing(c Check) error {
	for _, id := range c.After {
		switch before, done := s.outcomes[id]; {
		case done && before.Outcome == Failed:
			return NotRun("%s failed, and without it this check decides nothing", id)
		case done && before.Outcome == Unrun:
			return notRunError{errors.New(before.Seen), before.Needs}
		}
	}
	return nil
}

// Run checks a provider: first the value that make returns, then the same over the
// in-memory wire protocol. Each check is a subtest named by its id, such as
// value/SIGN-01; one without input in the kit is skipped with the reason. make is
// called for each provider needed; it is the Provider method of a
// [provider.Definition].
//
// [provider.Definition]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/provider#Definition
func Run(t *testing.T, kit Kit, make func() wire.Provider) {
	t.Helper()
	for _, subject := range []Subject{Value(make), OverWire(make)} {
		t.Run(subject.Form, func(t *testing.T) { RunSubject(t, kit, subject, Checks()) })
	}
}

// RunSubject runs the checks, each as a subtest named by its id.
func RunSubject(t *testing.T, kit Kit, subject Subject, checks []Check) {
	t.Helper()
	s := NewSession(kit, subject)
	defer s.Close()
	if err := s.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		t.Run(check.ID, func(t *testing.T) {
			switch result := s.Do(t.Context(), check); result.Outcome {
			case Failed:
				t.Errorf("%s Seen: %s. Why: %s", check.Rule, result.Seen, check.Why)
			case Unrun:
				t.Skip(result.Seen)
			}
		})
	}
}
