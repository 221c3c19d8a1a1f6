package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswersArePacedByTheirNames(t *testing.T) {
	for name, c := range map[string]struct {
		names []int
		want  time.Duration
	}{
		"a burst":                {[]int{10, 10}, 0},
		"after it":               {[]int{20, 5}, 50 * time.Millisecond},
		"an answer of nothing":   {[]int{20, 0, 0}, 20 * time.Millisecond},
		"more names than any":    {[]int{20, 1 << 30}, 200 * time.Millisecond},
		"each waits for its own": {[]int{20, 1, 2, 3}, 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, began := &pacer{burst: 20}, time.Now()
				for _, n := range c.names {
					if err := p.wait(t.Context(), n); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %s, want %s", took, c.want)
				}
			})
		})
	}
}

func TestPacerWaitIsCancellable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &pacer{burst: 1000}
	p.due = time.Now().Add(time.Hour)
	if err := p.wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
