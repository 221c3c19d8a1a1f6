package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestFailureOnAStalledMachineDecidesNothing(t *testing.T) {
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

func TestUnrunCheckIsRunAgainOnlyIfTimeWasShort(t *testing.T) {
	for want, why := range map[int]error{1: errors.New("no input"), 3: context.DeadlineExceeded} {
		s := NewSession(goodKit(), Value(good()))
		runs := 0
		s.stalls = func() func() bool { return func() bool { return true } }
		result := s.Do(t.Context(), Check{ID: "X", Run: func(context.Context, *Session) error { runs++; return NotRun("SET-06: %w", why) }})
		s.Close()
		if result.Outcome != Unrun || runs != want {
			t.Errorf("%v: %s after %d runs, want %d", why, result.Outcome, runs, want)
		}
	}
}

// An instance that could not be opened in time is opened anew.
func TestStalledOpeningIsRepeated(t *testing.T) {
	opened := 0
	subject := Value(good())
	open := subject.Open
	subject.Open = func(ctx context.Context) (*Instance, error) {
		if opened++; opened == 1 {
			return nil, context.DeadlineExceeded
		}
		return open(ctx)
	}
	s := NewSession(goodKit(), subject)
	defer s.Close()
	s.stalls = func() func() bool { return func() bool { return true } }
	result := s.Do(t.Context(), Check{ID: "X", Run: func(_ context.Context, s *Session) error { _, err := s.Ready(); return err }})
	if result.Outcome != Passed || opened != 2 {
		t.Errorf("%s %s, opened %d times", result.Outcome, result.Seen, opened)
	}
}

// 64 calls at once may take longer than one may on a machine that stands still; fewer show the same.
func TestStalledMachineMakesFewerCallsAtOnce(t *testing.T) {
	for stalled, want := range map[bool]Outcome{true: Passed, false: Failed} {
		var at atomic.Int64
		provider := before(func(context.Context, ca.SignRequest) error {
			defer at.Add(-1)
			if at.Add(1) > fewest {
				return ca.Errorf(ca.Deadline, "too late")
			}
			time.Sleep(time.Second)
			return nil
		})
		results := run(t, NewSession(goodKit(), Value(provider)), func() func() bool { return func() bool { return stalled } }, upTo(is("FAULT-01")))
		if last := results[len(results)-1]; last.ID != "FAULT-01" || last.Outcome != want {
			t.Errorf("stalled: %t: %s %s %s", stalled, last.ID, last.Outcome, last.Seen)
		}
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

func TestPressureIsReadFromLinux(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"io":     "some avg10=3.69 avg60=3.94 avg300=5.02 total=2000000\nfull avg10=3.48 avg60=3.45 avg300=2.02 total=1000000\n",
		"memory": "some avg10=0.00 avg60=0.05 avg300=0.09 total=500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
		"cpu":    "some avg10=20.95 avg60=21.50 avg300=54.48 total=52859151946\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := pressure(dir); got != 2500*time.Millisecond {
		t.Errorf("got %s", got)
	}
	if got := pressure(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("without the kernel's word: %s", got)
	}
}
