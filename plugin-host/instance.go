package pluginhost

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// instance is one life of a provider: a process, or a value in this process, or
// a test's. What it is asked after it ended fails Unavailable.
type instance interface {
	wire.Provider
	// Ended is closed as soon as it has ended, by itself or not; Err then says why.
	Ended() <-chan struct{}
	Err() error
	// Health asks whether it is alive.
	Health(ctx context.Context) error
	// Kill ends it at once; reason becomes Err.
	Kill(reason error)
	// Stop asks it to end and kills it where it has not when ctx ends. It returns
	// when nothing of it is left. It is called once.
	Stop(ctx context.Context)
	// Describe fills in what a Status says of one life.
	Describe(*Status)
}

// life is an instance that calls go to, and the count of those in flight.
type life struct {
	instance
	entry   Entry
	since   time.Time
	slots   chan struct{}   // one for each call in flight
	leaving context.Context // ends when no new calls are taken
	leave   context.CancelFunc
	again   sync.Mutex // held while it is configured once more
}

func newLife(entry Entry, i instance, calls int) *life {
	l := &life{instance: i, entry: entry, since: time.Now(), slots: make(chan struct{}, calls)}
	l.leaving, l.leave = context.WithCancel(context.Background())
	return l
}

// end is closed when the life has ended; of none, nothing comes.
func (l *life) end() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.Ended()
}

// enter takes a place for one call. It is false when the life is about to end
// or ended before there was one: the call then waits for the next life.
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

// drain takes no new calls and waits for those in flight, as long as most and
// until ctx ends.
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
