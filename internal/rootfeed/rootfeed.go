// Package rootfeed gets the roots that an authority publishes beside its replies: it
// watches a [ca.RootWatcher], or polls a [ca.RootSource].
package rootfeed

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Feed is one authority's. One goroutine may call its methods.
type Feed struct {
	Client ca.Client
	// Timeout limits a call for the roots, and Interval is the time between two, give or
	// take a tenth.
	Timeout, Interval time.Duration
	// Turn is what a watch or a call takes, so that one that hangs costs one goroutine.
	Turn call.Turn
	// Take takes a set of roots, in PEM, or returns why not.
	Take func(ctx context.Context, roots []byte) error
	// Refused gets Take's error for a set of a watch, which goes on: the next may be good.
	Refused func(err error)

	noWatch, noSource bool // an ability that turned out to be missing
}

// Forget has abilities that were missing tried again, as a new provider may have them.
func (f *Feed) Forget() { f.noWatch, f.noSource = false, false }

// Listen watches until the watch breaks, or asks once, and returns when to listen again. It
// reports false if the authority publishes its roots in neither way.
func (f *Feed) Listen(ctx context.Context) (wait time.Duration, tells bool, err error) {
	if w, ok := f.Client.(ca.RootWatcher); ok && !f.noWatch {
		if err := f.watch(ctx, w); ca.ActionFor(err) != ca.Missing {
			return 0, true, err
		}
		f.noWatch = true
	}
	if s, ok := f.Client.(ca.RootSource); ok && !f.noSource {
		if err := f.ask(ctx, s); ca.ActionFor(err) != ca.Missing {
			return f.interval(), true, err
		}
		f.noSource = true
	}
	return f.interval(), false, nil
}

func (f *Feed) interval() time.Duration {
	return f.Interval - f.Interval/10 + rand.N(f.Interval/5+1)
}

// watch always returns an error: a watch that ends has broken.
func (f *Feed) watch(ctx context.Context, w ca.RootWatcher) error {
	_, err := call.Do(ctx, 0, f.Turn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.WatchRoots(ctx, func(roots []byte) error {
			if err := f.Take(ctx, roots); err != nil {
				f.Refused(err)
			}
			return ctx.Err()
		})
	})
	if err == nil {
		err = ca.Errorf(ca.Unavailable, "the watch for roots ended")
	}
	return err
}

func (f *Feed) ask(ctx context.Context, s ca.RootSource) error {
	roots, err := call.Do(ctx, f.Timeout, f.Turn, s.Roots)
	if err != nil {
		return err
	}
	return f.Take(ctx, roots)
}
