package call_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// after is a call that takes its time and ignores its context.
func after(wait time.Duration) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		time.Sleep(wait)
		return "value", nil
	}
}

func TestWatchedCallThatReturnsInTimeIsNotLate(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second, 5*time.Second + 900*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			got, tooLate, err := call.Watched(t.Context(), 5*time.Second, func(err error) { t.Error("late:", err) }, after(takes))
			if got != "value" || tooLate || err != nil {
				t.Errorf("after %s: %q, %v, %v", takes, got, tooLate, err)
			}
		})
	}
}

func TestWatchedCallThatHangsIsSettledElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var reasons []error
		var at time.Duration
		late := func(err error) { reasons, at = append(reasons, err), time.Since(began) }
		got, tooLate, _ := call.Watched(t.Context(), 5*time.Second, late, after(time.Minute))
		if got != "" || !tooLate || time.Since(began) != time.Minute {
			t.Errorf("%q, %v after %s", got, tooLate, time.Since(began))
		}
		if len(reasons) != 1 || !errors.Is(reasons[0], ca.ErrDeadline) || at != 6*time.Second {
			t.Errorf("late was called with %v after %s, want once after 6s", reasons, at)
		}
	})
}

func TestWatchedCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, tooLate, err := call.Watched(ctx, time.Minute, func(err error) { t.Error("late:", err) }, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if tooLate || !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v, %v after %s", tooLate, err, time.Since(began))
		}
	})
}
