package controlplane

import (
	"sync"
	"time"
)

// watch answers one request of a stream until it is cancelled. go-control-plane v0.14.0
// (pkg/server) imposes these undocumented requirements:
//
//   - Nothing may be sent after cancel returns: the incremental server then closes the
//     channel, and the ordered one reuses it for another watch.
//   - The goroutine that calls CreateWatch and cancel also drains the channel, so
//     neither may block on it. The types of a stream share it and it has room for two
//     responses each, so at most one may be in flight.
//   - The answer to a request must be in the channel when CreateWatch returns: the
//     server reads the next request only after that.
//   - A watch may answer more than once: a client that does not acknowledge must still
//     get the next version.
//   - The server modifies the maps of a Subscription once its watch is cancelled, so
//     they are copied.
//   - A nil response ends a stream in one server and panics in the other; an error from
//     GetDiscoveryResponse ends it in both.
type watch[R any] struct {
	sub   *subscription
	build func(b batch, err error, taken func()) R

	// The fields below belong to run once it has started.
	out      chan R
	offer    chan R // out while response is waiting to be sent, else nil
	response R
	taken    chan struct{} // closed when the server takes the response; nil if none is in flight
	over     error
	timer    *time.Timer
	changed  chan struct{} // capacity one

	stop, done chan struct{}
}

// open answers what it can immediately and starts a goroutine for the rest.
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
	default: // nothing to send, or no room
	}
	go func() {
		defer close(w.done)
		defer unwatch()
		w.run()
	}()
	end := sync.OnceFunc(func() { close(w.stop) })
	return func() { end(); <-w.done }, nil
}

// observe subscribes the watch to changes, before the first look.
func (w *watch[R]) observe() (unwatch func()) {
	var stops []func()
	for _, name := range w.sub.names {
		if len(name) > maxName {
			continue
		}
		stop, err := w.sub.cache.resources.Watch(w.sub.caller, name, w.notify)
		if err == nil { // otherwise there will be no change
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
	default: // a notification is already pending
	}
}

// run sends responses one at a time: changes during a send are handled when the server
// has taken the response.
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

// look prepares a response if there is something to send. A closed source is reported
// once: it ends the stream.
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
