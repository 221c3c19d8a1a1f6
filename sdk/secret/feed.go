package secret

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rootfeed"
	"github.com/countersign-dev/countersign/internal/rotation"
)

// minPoll limits how often failing certificates trigger a request for roots.
const minPoll = time.Second

// feed is the way in which an authority publishes its roots. It outlives the listeners: a reload
// starts another.
type feed struct {
	turn    call.Turn          // for RootSource and RootWatcher
	poke    chan struct{}      // wakes the listener
	kicked  atomic.Bool        // has the listener start over
	stop    context.CancelFunc // ends the listener; the authority's goroutine owns it
	heard   chan struct{}      // closed when roots arrived, or will not
	hear    func()             // closes heard
	mute    atomic.Bool        // no roots are published, and only replies bring them
	failure atomic.Pointer[Failure]
	probed  atomic.Pointer[rotation.Pause] // until when the last probe will do
}

func newFeed() *feed {
	heard := make(chan struct{})
	return &feed{
		turn: call.NewTurn(), poke: make(chan struct{}, 1), stop: func() {}, heard: heard, hear: sync.OnceFunc(func() { close(heard) }),
	}
}

// listener learns the roots that an authority publishes separately: it watches if the client
// is a RootWatcher, polls if it is a RootSource, and otherwise does nothing, unless there
// is a root probe. It runs in its own goroutine, as it makes outside calls.
type listener struct {
	*authority
	conf   *Authority
	source rootfeed.Feed
	waits  rotation.Waits
	root   rootProbe
}

func (a *authority) listener() *listener {
	l := &listener{authority: a, conf: a.settings(), root: a.rootProbe()}
	l.source = rootfeed.Feed{
		Client: l.conf.Client, Timeout: l.conf.Timeout, Interval: l.conf.RootInterval, Turn: l.feed.turn,
		Take: l.take, Refused: func(err error) { l.note(err, rotation.Never) },
	}
	return l
}

func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = l.failed(err)
		}
		l.pause(ctx, wait)
	}
}

// listen watches until the watch breaks, or asks once. It returns the wait before the next
// call.
func (l *listener) listen(ctx context.Context) (time.Duration, error) {
	if l.feed.kicked.Swap(false) { // a new provider may have other abilities
		l.source.Forget()
		l.waits.Reset()
	}
	if wait, tells, err := l.source.Listen(ctx); tells {
		return wait, err
	}
	l.do(func() {
		if ctx.Err() == nil {
			l.feed.mute.Store(true)
			l.assume()
		}
	})
	l.feed.hear()
	if l.root.spec.Identity.IsZero() {
		return rotation.Never, nil
	}
	return l.probe(ctx)
}

func (l *listener) take(ctx context.Context, given []byte) error {
	roots, err := l.admit(l.conf, given)
	if err != nil {
		return err
	}
	l.do(func() {
		if ctx.Err() == nil { // else the client was replaced, and its successor may publish none
			l.feed.mute.Store(false)
			l.roots.announce(roots, time.Now(), l.keptUntil)
		}
	})
	l.waits.Reset()
	l.feed.failure.Store(nil)
	l.feed.hear()
	return nil
}

// failed records the error and returns the wait before the next try.
func (l *listener) failed(err error) time.Duration {
	left := time.Duration(0)
	if l.bundle.Load().Len() > 0 {
		left = 24 * time.Hour // the held roots stay, so there is no hurry
	}
	wait := l.waits.After(err, time.Now(), left, 0)
	l.note(err, wait)
	return wait
}

func (l *listener) note(err error, wait time.Duration) {
	err = fmt.Errorf("roots of authority %q: %w", l.Name, err)
	failure := newFailure(err, l.now(), wait)
	l.feed.failure.Store(failure)
	l.log.Warn("cannot fetch roots", "error", failure.Text, "next_try", failure.NextTry)
	l.observe(Event{Kind: Failed, Authority: l.Name, Reason: failure.Reason, Failure: failure})
}

// pause waits until wait has passed or refresh is called.
func (l *listener) pause(ctx context.Context, wait time.Duration) {
	last := time.Now()
	if rotation.Sleep(ctx, wait, l.now, l.feed.poke) {
		rotation.Sleep(ctx, minPoll-time.Since(last), l.now, nil)
	}
}

// refresh asks for the roots now rather than at the next interval.
func (a *authority) refresh() {
	select {
	case a.feed.poke <- struct{}{}:
	default: // a refresh is pending
	}
}
