// Package conformance is one suite of checks for every provider: [Run] holds a
// provider written in Go against it, as a value and over the boundary in memory;
// `countersign provider test` holds a compiled binary of any language against it.
//
// Each [Check] has an id, the rule and why it is one. What a check needs and only the
// author can give (a name that is refused, a token that has expired) stands in the
// [Kit]; where it does not, the check says so and is not counted as passed.
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

// Level groups checks by what they look at.
type Level string

// The levels, in the order in which they are run.
const (
	Behaviour     Level = "behaviour"
	Settings      Level = "settings"
	Sign          Level = "sign"
	Roots         Level = "roots"
	RootWatch     Level = "root-watch"
	TokenExchange Level = "token-exchange"
)

// Levels are all of them.
func Levels() []Level {
	return []Level{Behaviour, Settings, Sign, Roots, RootWatch, TokenExchange}
}

// Check is one rule.
type Check struct {
	ID    string // such as SIGN-01
	Level Level
	Rule  string // one sentence
	Why   string // one sentence
	// After are the checks without whose passing this one tells nothing.
	After []string
	// Run returns nil where the rule is kept, what [NotRun] made where that cannot be
	// seen, and what was seen otherwise.
	Run func(ctx context.Context, s *Session) error
}

// Checks returns those that need no process, in their order.
func Checks() []Check {
	return slices.Concat(metadataChecks(), protocolChecks(), settingsChecks(), signChecks(), refusalChecks(),
		faultChecks(), rootChecks(), watchChecks(), tokenChecks())
}

// Outcome is what came of a check.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	Unrun  Outcome = "not run"
)

// Result is the outcome of one check.
type Result struct {
	ID      string        `json:"id"`
	Level   Level         `json:"level"`
	Outcome Outcome       `json:"outcome"`
	Rule    string        `json:"rule"`
	Why     string        `json:"why"`
	Seen    string        `json:"seen,omitempty"` // what was seen instead, or what is missing
	Took    time.Duration `json:"took_ns"`
}

type notRunError struct{ error }

// NotRun is why a check tells nothing here.
func NotRun(format string, args ...any) error { return notRunError{fmt.Errorf(format, args...)} }

// Do runs one check. It is not to be called concurrently.
func (s *Session) Do(ctx context.Context, c Check) Result {
	begin := time.Now()
	err := s.missing(c)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, s.Kit.limit())
		err = s.guarded(limited, c)
		cancel()
	}
	s.closeAll(&s.opened)
	out := Result{ID: c.ID, Level: c.Level, Outcome: Passed, Rule: c.Rule, Why: c.Why, Took: time.Since(begin)}
	if unrun, ok := errors.AsType[notRunError](err); ok {
		out.Outcome, out.Seen = Unrun, s.clean(unrun.Error())
	} else if err != nil {
		out.Outcome, out.Seen = Failed, s.clean(err.Error())
	}
	s.outcomes[c.ID] = out
	return out
}

// guarded runs a check: where the provider is a value, its panics come here.
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
			return NotRun("%s failed, and without it this tells nothing", id)
		case done && before.Outcome == Unrun:
			return NotRun("%s", before.Seen)
		}
	}
	return nil
}

// Run holds a provider against every check: first the value that make returns, then
// the same over the boundary, in memory. Each check is a subtest by its id, such as
// value/SIGN-01; what the kit gives nothing for is skipped with the reason. make is
// called for each provider that is needed; it is the method Provider of a
// [provider.Definition].
//
// [provider.Definition]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/provider#Definition
func Run(t *testing.T, kit Kit, make func() wire.Provider) {
	t.Helper()
	for _, subject := range []Subject{Value(make), OverWire(make)} {
		t.Run(subject.Form, func(t *testing.T) { RunSubject(t, kit, subject, Checks()) })
	}
}

// RunSubject runs these checks, each as a subtest by its id.
func RunSubject(t *testing.T, kit Kit, subject Subject, checks []Check) {
	t.Helper()
	s := NewSession(kit, subject)
	defer s.Close()
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
