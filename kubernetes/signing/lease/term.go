package lease

import (
	"context"
	"sync"
	"time"
)

// look is how often the wall clock is looked at.
const look = time.Second

// term is the time from one acquisition of the Lease to its loss, which is final.
type term struct {
	valid time.Duration // after a renewal was sent
	now   func() time.Time
	over  context.Context // ends with the term
	end   context.CancelFunc

	mu    sync.Mutex
	sent  time.Time // when the last renewal that succeeded was sent; zero before the first
	wall  time.Time // the same by the wall clock
	quiet bool      // no call is in flight, and none begins
	calls sync.WaitGroup
}

// newTerm returns a term that has not begun. It ends a fifth of the duration before others
// may lead: time for calls in flight to end, and for clocks that run at different rates.
func newTerm(cfg Config) *term {
	t := &term{valid: cfg.Duration - cfg.Duration/5, now: cfg.Now}
	t.over, t.end = context.WithCancel(context.Background())
	return t
}

// renewed records a renewal, by the moment before it was sent: the server wrote it later.
func (t *term) renewed(sent, wall time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.wall = sent, wall
}

func (t *term) begun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.sent.IsZero()
}

func (t *term) held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left() > 0
}

// left returns how long the Lease is surely ours. It requires the lock to be held.
func (t *term) left() time.Duration {
	if t.sent.IsZero() || t.over.Err() != nil {
		return 0
	}
	return t.valid - max(time.Since(t.sent), t.now().Sub(t.wall))
}

// watch ends the term when it is no longer surely ours.
func (t *term) watch() {
	defer t.end()
	for {
		t.mu.Lock()
		left := t.left()
		t.mu.Unlock()
		if left <= 0 {
			return
		}
		select {
		case <-time.After(min(left, look)):
		case <-t.over.Done():
		}
	}
}

// enter lets a call begin if the Lease is ours. The returned context ends with the term, so
// that a call that still waits for something (a provider that starts) does not go out later.
func (t *term) enter(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left() <= 0 {
		return nil, nil, false
	}
	t.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.over, cancel)
	return ctx, func() {
		stop()
		cancel()
		t.calls.Done()
	}, true
}

// settle ends the term and waits for the calls in flight, for as long as given. It records
// whether all have returned.
func (t *term) settle(within time.Duration) {
	t.mu.Lock() // a call has entered, or finds that the term is over
	t.end()
	t.mu.Unlock()
	done := make(chan struct{})
	go func() { // a call that never returns costs this goroutine
		t.calls.Wait()
		close(done)
	}()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-done:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.quiet = true
	case <-late.C:
	}
}

// settled reports whether nothing of the term can reach a CA anymore.
func (t *term) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet
}
