package controlplane

import (
	"sync"
	"time"
)

// watch answers one request of a stream until it is cancelled. What go-control-plane
// v0.14.0 (pkg/server) demands of it, and is written nowhere:
//
//   - Once cancel has returned nothing may be sent: the incremental server closes the
//     channel then, and the ordered one has another watch on it.
//   - The goroutine that calls CreateWatch and cancel is the one that empties the
//     channel, so neither may wait for room in it. It is shared by the types of a stream
//     and has room for two responses of each: one may be on its way, no more.
//   - What a request asks for is to be in the channel when CreateWatch returns: the
//     next request is looked at only after that.
//   - A watch may answer more than once: a client that does not acknowledge must get the
//     next version, too.
//   - The maps of a Subscription are changed in place once its watch is cancelled, so
//     they are copied.
//   - A nil response ends a stream in one server and panics in the other; an error from
//     GetDiscoveryResponse ends it in both.
type watch[R any] struct {
	sub   *subscription
	build func(b batch, err error, taken func()) R

	// All below belongs to run, once it has begun.
	out      chan R
	offer    chan R // out while response is to be sent, else nil
	response R
	taken    chan struct{} // closed when the server takes the response; nil where none is on its way
	over     error
	timer    *time.Timer
	changed  chan struct{} // a slot of one

	stop, done chan struct{}
}

// open answers what can be answered and leaves a goroutine to see to the rest.
func open[R any](s *subscription, out chan R, build func(batch, error, func()) R) (cancel func(), err error) {
	if len(s.names) == 0 {
		return func() {}, nil
	}
	w := &watch[R]{
		sub: s, build: build, out: out, timer: time.NewTimer(0), changed: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	w.timer.Stop()
	unwatch := w.observe()
	w.look()
	if w.over != nil {
		unwatch()
		return nil, w.over
	}
	select {
	case w.offer <- w.response:
		w.offer = nil
	default: // nothing to say, or no room
	}
	go func() {
		defer close(w.done)
		defer unwatch()
		w.run()
	}()
	end := sync.OnceFunc(func() { close(w.stop) })
	return func() { end(); <-w.done }, nil
}

// observe has the watch told of changes, from before the first look.
func (w *watch[R]) observe() (unwatch func()) {
	var stops []func()
	for _, name := range w.sub.names {
		if len(name) > maxName {
			continue
		}
		stop, err := w.sub.cache.resources.Watch(w.sub.caller, name, w.notify)
		if err == nil { // else there will be no change
			stops = append(stops, stop)
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (w *watch[R]) notify(string) {
	select {
	case w.changed <- struct{}{}:
	default: // a notice is waiting already
	}
}

// run sends what there is, one response at a time: what changes while one is on its
// way is looked at when the server has taken it.
func (w *watch[R]) run() {
	for {
		changed := w.changed
		if w.taken != nil {
			changed = nil
		}
		select {
		case w.offer <- w.response:
			w.offer = nil
		case <-w.taken:
			w.taken = nil
			w.look()
		case <-changed:
			w.look()
		case <-w.timer.C:
			w.look()
		case <-w.stop:
			return
		}
	}
}

// look prepares a response where there is something to tell. A source that is closed
// is told once: it ends the stream.
func (w *watch[R]) look() {
	if w.over != nil {
		return
	}
	w.timer.Stop()
	b, err := w.sub.next(time.Now())
	w.over = err
	if err == nil && b.empty() {
		if !b.wake.IsZero() {
			w.timer.Reset(time.Until(b.wake))
		}
		return
	}
	taken := make(chan struct{})
	w.response, w.offer, w.taken = w.build(b, err, sync.OnceFunc(func() { close(taken) })), w.out, taken
}
