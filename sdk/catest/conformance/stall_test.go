package conformance

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFailureOnAStalledMachineIsNoVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		stalled, fails int // attempts
		want           Outcome
		runs           int
	}{
		"stalled once":          {1, 1, Passed, 2},
		"stalled, and it fails": {1, 9, Failed, 2},
		"always stalled":        {9, 9, Failed, 3},
		"not stalled":           {0, 1, Failed, 1},
		"stalled, but passed":   {9, 0, Passed, 1},
	} {
		s := NewSession(goodKit(), Value(good()))
		runs := 0
		s.stalls = func() func() bool { return func() bool { return runs <= test.stalled } }
		result := s.Do(t.Context(), Check{ID: "X", Run: func(context.Context, *Session) error {
			if runs++; runs <= test.fails {
				return errors.New("too late")
			}
			return nil
		}})
		s.Close()
		if result.Outcome != test.want || runs != test.runs {
			t.Errorf("%s: %s after %d runs, want %s after %d", name, result.Outcome, runs, test.want, test.runs)
		}
	}
}

func TestUnrunCheckIsNotRunAgain(t *testing.T) {
	s := NewSession(goodKit(), Value(good()))
	defer s.Close()
	runs := 0
	s.stalls = func() func() bool { return func() bool { return true } }
	result := s.Do(t.Context(), Check{ID: "X", Run: func(context.Context, *Session) error { runs++; return NotRun("no input") }})
	if result.Outcome != Unrun || runs != 1 {
		t.Errorf("%s after %d runs", result.Outcome, runs)
	}
}

// In virtual time, nothing is ever late.
func TestMachineThatIsInTimeIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stood := stalls()
		time.Sleep(10 * time.Second)
		if stood() {
			t.Error("it is said to have stood still")
		}
	})
}
