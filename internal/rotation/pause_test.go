package rotation

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPauseEndsByEitherClock(t *testing.T) {
	begun := at(0)
	p := NewPause(time.Hour, begun)
	for name, c := range map[string]struct {
		wall, mono time.Duration
		left       time.Duration
	}{
		"neither":       {time.Minute, time.Minute, 59 * time.Minute},
		"a suspend":     {time.Hour, time.Minute, 0},
		"set back":      {-24 * time.Hour, time.Hour, 0},
		"set ahead":     {24 * time.Hour, time.Second, 0},
		"set back some": {-time.Hour, 30 * time.Minute, 30 * time.Minute},
	} {
		now := Time{Wall: begun.Wall.Add(c.wall), Mono: begun.Mono.Add(c.mono)}
		if left := p.Left(now); left != c.left || p.Over(now) != (c.left == 0) {
			t.Errorf("%s: over %t, %s left, want %s", name, p.Over(now), left, c.left)
		}
	}
	if p := NewPause(Never, begun); p.Over(at(1000*time.Hour)) || p.Left(at(0)) != 0 {
		t.Error("what never ends is over")
	}
	if p := NewPause(-5, begun); !p.Over(begun) || !(Pause{}).Over(begun) {
		t.Error("no pause is not over")
	}
}

func TestSleepEndsByClockChangeOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
		took := func(ctx context.Context, wait time.Duration, changed <-chan struct{}, wantChanged bool) time.Duration {
			began := time.Now()
			if got := Sleep(ctx, wait, wall, changed); got != wantChanged {
				t.Errorf("changed: %t", got)
			}
			return time.Since(began)
		}
		if d := took(t.Context(), time.Hour, nil, false); d != time.Hour {
			t.Errorf("an hour took %s", d)
		}
		time.AfterFunc(time.Minute, func() { ahead.Store(int64(2 * time.Hour)) }) // suspended
		if d := took(t.Context(), time.Hour, nil, false); d > time.Minute+look {
			t.Errorf("after a suspend it took %s", d)
		}
		changed := make(chan struct{}, 1)
		time.AfterFunc(time.Minute, func() { changed <- struct{}{} })
		if d := took(t.Context(), Never, changed, true); d != time.Minute {
			t.Errorf("a change came after %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if d := took(ctx, Never, nil, false); d != time.Minute {
			t.Errorf("the end came after %s", d)
		}
		<-After(t.Context(), time.Minute, wall)
	})
}
