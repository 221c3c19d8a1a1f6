package pluginhost

import (
	"context"
	"sync"

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
	number  int
	slots   chan struct{} // one for each call in flight
	leaving chan struct{} // closed when no new calls are taken
	again   sync.Mutex    // held while it is configured once more
}

func newLife(number int, i instance, calls int) *life {
	return &life{instance: i, number: number, slots: make(chan struct{}, calls), leaving: make(chan struct{})}
}

// enter takes a place for one call. It is false when the life is about to end
// or ended before there was one: the call then waits for the next life.
func (l *life) enter(ctx context.Context) (bool, error) {
	select {
	case <-l.leaving:
		return false, nil
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return true, nil
	case <-l.leaving:
		return false, nil
	case <-l.Ended():
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *life) exit() { <-l.slots }

// drain takes no new calls and waits for those in flight, until ctx ends.
func (l *life) drain(ctx context.Context) {
	close(l.leaving)
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
