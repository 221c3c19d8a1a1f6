package wire

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("broken")

func TestFloodOfRootsIsPassedOnOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		sent, last := 0, 0
		var times []time.Time
		err := pace(ctx, func() ([]byte, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sent++
			return strconv.AppendInt(nil, int64(sent), 10), nil
		}, func(roots []byte) error {
			times = append(times, time.Now())
			n, _ := strconv.Atoi(string(roots))
			if n <= last {
				t.Errorf("%d after %d", n, last)
			}
			last = n
			return nil
		})
		// One at the start, one each second, the last of which may meet the deadline, and one at
		// the end.
		if !errors.Is(err, context.DeadlineExceeded) || len(times) > 22 || len(times) < 19 || sent > 205 {
			t.Errorf("%v: %d sets were passed on, %d were read", err, len(times), sent)
		}
		for i := 1; i < len(times)-1; i++ { // the last arrives with the end
			if d := times[i].Sub(times[i-1]); d < time.Second {
				t.Errorf("a set after %s", d)
			}
		}
	})
}

func TestFirstSetPassesAtOnceAndLastIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets := make(chan string, 3)
		sets <- "a"
		sets <- "b"
		sets <- "c"
		close(sets)
		began, got := time.Now(), ""
		err := pace(t.Context(), func() ([]byte, error) {
			set, ok := <-sets
			if !ok {
				return nil, errBroken
			}
			return []byte(set), nil
		}, func(roots []byte) error {
			if got == "" && time.Since(began) > 0 {
				t.Errorf("the first came after %s", time.Since(began))
			}
			got += string(roots)
			return nil
		})
		if !errors.Is(err, errBroken) || got != "ac" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestExpensiveRootsAreTakenLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		busy := time.Duration(0)
		_ = pace(ctx, func() ([]byte, error) { return []byte("roots"), ctx.Err() }, func([]byte) error {
			time.Sleep(300 * time.Millisecond)
			busy += 300 * time.Millisecond
			return nil
		})
		if busy > 32*time.Second {
			t.Errorf("%s of 10 minutes went into checks", busy)
		}
	})
}

func TestReceiverErrorEndsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := pace(ctx, func() ([]byte, error) { return []byte("roots"), ctx.Err() }, func([]byte) error { return errBroken })
		cancel()
		if !errors.Is(err, errBroken) {
			t.Error(err)
		}
	})
}
