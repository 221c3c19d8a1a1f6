package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Stream is a gRPC server stream with request type Q and response type R.
type Stream[Q, R any] interface {
	Context() context.Context
	Recv() (Q, error)
	Send(R) error
}

// runner connects a stream to its machine.
//
// One goroutine receives; most of a stream's memory is goroutine stacks, so an idle stream
// has no other. A second one is started when there is something to send and ends when all
// is sent. A client that does not read therefore blocks no other stream; changes meanwhile
// only set marks in the machine, and the response is built when it can be sent.
type runner[C, Q, R any] struct {
	engine *Engine[C]
	stream Stream[Q, R]
	caller C
	id     uint64
	name   atomic.Pointer[string] // of the caller, made when a line about it is first limited
	finish func(error)            // sends the status; nil if only returning from the handler can
	over   chan struct{}          // closed when ended; used only if finish is nil

	mu      sync.Mutex // guards the machine and the fields below; held only briefly
	machine machine[Q, R]
	sending bool
	ended   bool
	status  error
	awaited int64 // since when the client owes a message, in Unix nanoseconds; zero if it owes none
	timer   *time.Timer
	notify  []func(string) // one per type, created on first use
	// unwatched are the new names that the source refused to watch, until they are looked up.
	unwatched map[typed]*entry
	sends     sync.WaitGroup
}

// finisher returns a function that ends a stream with a status while its handler blocks
// in Recv, or nil. grpc-go documents only the handler's return for that, but its
// transport stream has always had this method, and grpc-go itself calls it when a Send
// fails beside a blocked Recv. If the method is missing, the handler's goroutine waits
// beside a receiving one.
func finisher(ctx context.Context) func(error) {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface {
		WriteStatus(*status.Status) error
	})
	if !ok {
		return nil
	}
	return func(err error) { _ = s.WriteStatus(status.Convert(err)) }
}

// run serves the stream until it ends and returns its status.
func (r *runner[C, Q, R]) run() error {
	r.mu.Lock()
	r.await() // a stream begins with a request
	r.mu.Unlock()
	r.observe(Event[C]{Kind: Opened})
	if r.finish != nil {
		r.serve()
		return r.status
	}
	go r.serve() // ends when this handler has returned
	<-r.over
	return r.status
}

// serve receives until the stream ends and returns when all its goroutines are done.
func (r *runner[C, Q, R]) serve() {
	defer r.engine.leave(r)
	r.end(r.receive())
	r.sends.Wait() // a sender may still start watches for listed names
	r.machine.stop()
	r.observe(Event[C]{Kind: Closed, Err: r.status})
	r.log(slog.LevelDebug, "stream closed", "error", r.status)
}

// end ends the stream with a status; the first one counts.
func (r *runner[C, Q, R]) end(err error) {
	r.mu.Lock()
	first := !r.ended
	if first {
		r.ended, r.status = true, err
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if !first {
		return
	}
	r.engine.cfg.Ended(r.stream.Context())
	switch {
	case r.finish != nil:
		r.finish(err)
	default:
		close(r.over)
	}
}

// receive handles requests until the client ends the stream (nil) or it breaks.
func (r *runner[C, Q, R]) receive() error {
	for {
		req, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.handle(req); err != nil {
			return err
		}
	}
}

// handle handles one request. It is a function of its own, as what it needs of the stack is not
// held while the stream waits for the next request.
//
//go:noinline
func (r *runner[C, Q, R]) handle(req Q) error {
	r.mu.Lock()
	r.awaited = 0
	st, err := r.machine.request(req)
	r.mu.Unlock()
	if err != nil {
		r.release(&st)
		return err
	}
	if st.first {
		if r.caller, err = r.engine.meet(r.stream.Context(), r, r.caller, st.node); err != nil {
			return err
		}
	}
	r.follow(&st)
	return nil
}

// follow carries out a request: watches first, then lookups, so that no change is
// missed between them.
func (r *runner[C, Q, R]) follow(st *step) {
	r.report(st)
	r.reportCleared(st.typ)
	r.release(st)
	r.watchList(st)
	r.watch(st.typ, st.added)
	if len(st.added) == 0 && !st.woken && st.wild == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if st.wild != nil {
		r.machine.relist(st.typ)
	}
	for _, e := range st.added {
		r.machine.changed(st.typ, e.name)
	}
	r.kick()
}

// kick starts a goroutine to send what is due. The caller holds the lock.
func (r *runner[C, Q, R]) kick() {
	if r.sending || r.ended {
		return
	}
	r.sending = true
	r.sends.Add(1)
	go r.send()
}

// send sends until nothing is due.
func (r *runner[C, Q, R]) send() {
	defer r.sends.Done()
	for {
		next, ok := r.due()
		if !ok {
			return
		}
		do := r.push
		if next.list {
			do = r.list
		}
		if err := do(next); err != nil {
			r.end(err)
			return
		}
	}
}

// push looks names up and sends the response, if there is one.
func (r *runner[C, Q, R]) push(t task) error {
	found := r.look(t.typ, t.names)
	if err := ending(found); err != nil {
		return err
	}
	r.mu.Lock()
	response, b, ok := r.machine.respond(t.typ, found, time.Now())
	if ok {
		r.await()
	}
	r.mu.Unlock()
	r.tellRefused(t.typ, b.refused)
	r.reportCleared(t.typ)
	if !ok {
		return nil
	}
	if err := r.stream.Send(response); err != nil {
		return err
	}
	r.tellPushed(t.typ, b)
	return nil
}

// await records that the client owes a message from now on, unless it already did. The
// caller holds the lock.
func (r *runner[C, Q, R]) await() {
	if r.awaited == 0 {
		r.awaited = time.Now().UnixNano()
	}
}

// silent reports whether the client has owed a message since before the given time.
func (r *runner[C, Q, R]) silent(before time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.awaited != 0 && r.awaited < before.UnixNano()
}

// due returns the next task, or false if there is none; kick then considers this sender
// gone.
func (r *runner[C, Q, R]) due() (task, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.ended {
		if next, ok := r.machine.due(now); ok {
			return next, true
		}
		r.arm(now)
	}
	r.sending = false
	return task{}, false
}

// arm sets the timer for held entries. The caller holds the lock.
func (r *runner[C, Q, R]) arm(now time.Time) {
	at := r.machine.wake()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if !at.IsZero() {
		r.timer = time.AfterFunc(at.Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.kick()
		})
	}
}
