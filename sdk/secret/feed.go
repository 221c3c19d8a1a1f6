package secret

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// minPoll limits how often failing certificates trigger a request for roots.
const minPoll = time.Second

// feed learns the roots that an authority publishes separately: it watches if the client
// is a RootWatcher, polls if it is a RootSource, and otherwise does nothing, unless there
// is a scout. It runs in its own goroutine, as it makes outside calls.
type feed struct {
	*authority
	conf              *Authority
	noWatch, noSource bool // an ability that turned out to be missing
	waits             rotation.Waits
	scout             scout
}

func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := f.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = f.failed(err)
		}
		f.pause(ctx, wait)
	}
}

// listen watches until the watch breaks, or asks once. It returns the wait before the next
// call.
func (f *feed) listen(ctx context.Context) (time.Duration, error) {
	if f.kicked.Swap(false) { // a new provider may have other abilities
		f.noWatch, f.noSource = false, false
		f.waits.Reset()
	}
	if w, ok := f.conf.Client.(ca.RootWatcher); ok && !f.noWatch {
		err := f.watch(ctx, w)
		if ca.ActionFor(err) != ca.Missing {
			return 0, err
		}
		f.noWatch = true
	}
	if s, ok := f.conf.Client.(ca.RootSource); ok && !f.noSource {
		err := f.ask(ctx, s)
		if ca.ActionFor(err) != ca.Missing {
			interval := f.conf.RootInterval - f.conf.RootInterval/10
			return interval + rand.N(f.conf.RootInterval/5+1), err
		}
		f.noSource = true
	}
	f.do(func() {
		if ctx.Err() == nil {
			f.mute.Store(true)
			f.assume()
		}
	})
	f.hear()
	if f.scout.spec.Identity.IsZero() {
		return rotation.Never, nil
	}
	return f.scouts(ctx)
}

// watch always returns an error: a watch that ends has broken.
func (f *feed) watch(ctx context.Context, w ca.RootWatcher) error {
	_, err := call.Do(ctx, 0, f.asks, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.WatchRoots(ctx, func(roots []byte) error {
			// A bad set must not end the watch: the next may be good.
			if err := f.take(ctx, roots); err != nil {
				f.note(err, rotation.Never)
			}
			return ctx.Err()
		})
	})
	if err == nil {
		err = ca.Errorf(ca.Unavailable, "the watch for roots ended")
	}
	return err
}

func (f *feed) ask(ctx context.Context, s ca.RootSource) error {
	roots, err := call.Do(ctx, f.conf.Timeout, f.asks, s.Roots)
	if err != nil {
		return err
	}
	return f.take(ctx, roots)
}

func (f *feed) take(ctx context.Context, given []byte) error {
	roots, err := f.admit(given)
	if err != nil {
		return err
	}
	f.do(func() {
		if ctx.Err() == nil { // else the client was replaced, and its successor may publish none
			f.mute.Store(false)
			f.roots.tell(roots, time.Now(), f.keptUntil)
		}
	})
	f.waits.Reset()
	f.failure.Store(nil)
	f.hear()
	return nil
}

// failed records the error and returns the wait before the next try.
func (f *feed) failed(err error) time.Duration {
	left := time.Duration(0)
	if f.bundle.Load().Len() > 0 {
		left = 24 * time.Hour // the held roots stay, so there is no hurry
	}
	wait := f.waits.After(err, time.Now(), left, 0)
	f.note(err, wait)
	return wait
}

func (f *feed) note(err error, wait time.Duration) {
	err = fmt.Errorf("roots of authority %q: %w", f.Name, err)
	failure := newFailure(err, f.now(), wait)
	f.failure.Store(failure)
	f.log.Warn("cannot fetch roots", "error", failure.Text, "next_try", failure.NextTry)
	f.observe(Event{Type: Failed, Authority: f.Name, Reason: failure.Reason, Failure: failure})
}

// pause waits until wait has passed or refresh is called.
func (f *feed) pause(ctx context.Context, wait time.Duration) {
	last := time.Now()
	var over <-chan time.Time
	if wait != rotation.Never {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return
	case <-over:
		return
	case <-f.poke:
	}
	select {
	case <-ctx.Done():
	case <-time.After(minPoll - time.Since(last)):
	}
}

// refresh asks for the roots now rather than at the next interval.
func (a *authority) refresh() {
	select {
	case a.poke <- struct{}{}:
	default: // a refresh is pending
	}
}
