package record

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecentValueIsAskedForSeldomAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recent[int]
		calls, away := 0, errors.New("away")
		err := away
		get := func(want int, wantErr error, wantCalls int) {
			t.Helper()
			got, failed := r.Get(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) (int, error) { calls++; return calls, err })
			if got != want || !errors.Is(failed, wantErr) || calls != wantCalls {
				t.Errorf("got %d, %v after %d calls; want %d, %v after %d", got, failed, calls, want, wantErr, wantCalls)
			}
		}
		get(0, away, 1)
		err = nil
		get(0, away, 1)
		time.Sleep(again)
		get(2, nil, 2)
		get(2, nil, 2)
		time.Sleep(recent)
		err = away
		get(2, away, 3)
		err = nil
		time.Sleep(again - 1)
		get(2, away, 3)
		time.Sleep(time.Nanosecond)
		get(4, nil, 4)
	})
}
