package bench

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// longest is how long all answers may take: it only tells what hangs, however busy the
// machine is.
const longest = 5 * time.Minute

// tally notes when answers come, whichever stream they come on.
type tally struct {
	mu     sync.Mutex
	wanted int
	came   []time.Time
	all    chan struct{} // a slot: as many have come as are wanted
}

func newTally() *tally { return &tally{all: make(chan struct{}, 1)} }

// expect begins to count to n.
func (t *tally) expect(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted, t.came = n, make([]time.Time, 0, n)
}

func (t *tally) count() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.came = append(t.came, now); len(t.came) == t.wanted {
		t.all <- struct{}{}
	}
}

// until waits for all that are wanted and returns how long each took, the shortest first.
func (t *tally) until(begin time.Time) ([]time.Duration, error) {
	select {
	case <-t.all:
	case <-time.After(longest):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.came) < t.wanted {
		return nil, fmt.Errorf("%d of %d answers had come within %s", len(t.came), t.wanted, longest)
	}
	took := make([]time.Duration, t.wanted)
	for i := range took {
		took[i] = t.came[i].Sub(begin)
	}
	slices.Sort(took)
	return took, nil
}

// last returns how long the last one took.
func last(took []time.Duration, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	return took[len(took)-1], nil
}
