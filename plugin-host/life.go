package pluginhost

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// errClosing ends a life that did nothing wrong.
var errClosing = errors.New("closed by the host")

// instance is one running provider: a process, or a value in this process or in a test.
// Calls after its end fail with Unavailable.
type instance interface {
	wire.Provider
	// Connect connects to it. Before, only the methods below may be called.
	Connect(ctx context.Context) error
	// Ended is closed when it has ended, for whatever reason; Err then returns why.
	Ended() <-chan struct{}
	Err() error
	// Health checks whether it is alive.
	Health(ctx context.Context) error
	// Kill ends it at once; reason becomes Err.
	Kill(reason error)
	// Stop asks it to end, kills it if it has not when ctx ends, and returns when nothing
	// of it is left. It is called once.
	Stop(ctx context.Context)
	// Hide keeps values out of what is logged of its own output, in addition to earlier ones.
	// One goroutine at a time calls it.
	Hide(values []ca.Token)
	// Report describes it.
	Report() process.Report
}

// life is one life of a provider: first on its way to ready, then the target of calls.
type life struct {
	instance // nil if the start failed
	plan     *Plan
	number   int

	reload  *reload            // that asked for it; nil: a start or restart
	cancel  context.CancelFunc // gives up the way to ready
	outcome chan error         // of the way to ready

	urgent  *time.Timer     // kills it before it is ready; nil: nothing is urgent
	idle    atomic.Bool     // it waits for its CA before it is ready
	signed  atomic.Int32    // certificates and tokens
	since   time.Time       // when it became ready; zero: it did not
	slots   chan struct{}   // one for each call in flight
	leaving context.Context // ends when it takes no new calls
	leave   context.CancelFunc

	offers // the settings that it has, and is offered
}

// result returns the outcome of the way to ready. Without a life it blocks.
func (l *life) result() <-chan error {
	if l == nil {
		return nil
	}
	return l.outcome
}

// end is closed when the life has ended. Without a life it blocks.
func (l *life) end() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.Ended()
}

// open makes it ready for that many calls at once.
func (l *life) open(calls int) {
	l.since, l.slots = time.Now(), make(chan struct{}, calls)
	l.leaving, l.leave = context.WithCancel(context.Background())
}

// record returns what it did before it ended at now.
func (l *life) record(now time.Time) record {
	if l.since.IsZero() {
		return record{}
	}
	return record{now.Sub(l.since), l.signed.Load()}
}

// enter takes a slot for one call. It is false if the life ends or stops taking calls
// before a slot is free: the call then waits for the next life.
func (l *life) enter(ctx context.Context) (bool, error) {
	select {
	case <-l.leaving.Done():
		return false, nil
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return true, nil
	case <-l.leaving.Done():
		return false, nil
	case <-l.Ended():
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *life) exit() { <-l.slots }

// over reports whether calls go to another life, or soon will.
func (l *life) over() bool {
	// A stream can break a moment before its process is known to have ended.
	select {
	case <-l.leaving.Done():
		return true
	case <-l.Ended():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// drain rejects new calls and waits for those in flight, up to most and until ctx ends.
func (l *life) drain(ctx context.Context, most time.Duration) {
	l.leave()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for range cap(l.slots) {
		select {
		case l.slots <- struct{}{}:
		case <-l.Ended():
			return
		case <-ctx.Done():
			return
		}
	}
}
