package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/rootfeed"
	"github.com/countersign-dev/countersign/internal/rotation"
)

// minPoll limits how often failing certificates trigger a request for roots.
const minPoll = time.Second

// feed learns the roots that an authority publishes separately: it watches if the client
// is a RootWatcher, polls if it is a RootSource, and otherwise does nothing, unless there
// is a scout. It runs in its own goroutine, as it makes outside calls.
type feed struct {
	*authority
	conf   *Authority
	source rootfeed.Feed
	waits  rotation.Waits
	scout  scout
}

func (a *authority) feed() *feed {
	f := &feed{authority: a, conf: a.settings(), scout: a.scout()}
	f.source = rootfeed.Feed{
		Client: f.conf.Client, Timeout: f.conf.Timeout, Interval: f.conf.RootInterval, Turn: f.asks,
		Take: f.take, Refused: func(err error) { f.note(err, rotation.Never) },
	}
	return f
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
		f.source.Forget()
		f.waits.Reset()
	}
	if wait, tells, err := f.source.Listen(ctx); tells {
		return wait, err
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

func (f *feed) take(ctx context.Context, given []byte) error {
	roots, err := f.admit(f.conf, given)
	if err != nil {
		return err
	}
	f.do(func() {
		if ctx.Err() == nil { // else the client was replaced, and its successor may publish none
			f.mute.Store(false)
			f.roots.announce(roots, time.Now(), f.keptUntil)
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
	f.observe(Event{Kind: Failed, Authority: f.Name, Reason: failure.Reason, Failure: failure})
}

// pause waits until wait has passed or refresh is called.
func (f *feed) pause(ctx context.Context, wait time.Duration) {
	last := time.Now()
	if rotation.Sleep(ctx, wait, f.now, f.poke) {
		rotation.Sleep(ctx, minPoll-time.Since(last), f.now, nil)
	}
}

// refresh asks for the roots now rather than at the next interval.
func (a *authority) refresh() {
	select {
	case a.poke <- struct{}{}:
	default: // a refresh is pending
	}
}
