package xds

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Stream is a gRPC server stream; Q and R are its request and response.
type Stream[Q, R any] interface {
	Context() context.Context
	Recv() (Q, error)
	Send(R) error
}

// step is what a request came to.
type step struct {
	typ      int
	url      string
	added    []*entry // to be watched, then looked up
	dropped  []*entry // to be watched no more
	refused  []string
	unserved string // the type, where it is not served
	woken    bool   // something became due
	acked    bool
	nacked   bool
	version  string   // of the response that was acknowledged or refused; empty where another went out since
	names    []string // that were refused with it
	reason   string
}

// machine is the protocol of one stream in one dialect, without I/O.
type machine[Q, R any] interface {
	request(Q) (step, error)
	changed(typ int, name string)
	due(now time.Time) (typ int, names []string)
	respond(typ int, found []lookup, now time.Time) (response R, b batch, ok bool)
	wake() time.Time
	nodeID() string
	all() iter.Seq[*entry]
}

// runner moves messages between a stream and its machine.
//
// One goroutine receives, and with it the stream waits: most of a stream's memory
// is goroutine stacks. Another is started when there is something to send and
// ends when all is sent, so a client that does not read holds up nobody else, and
// what changes meanwhile waits as marks in the machine, to be built when it can go.
type runner[C, Q, R any] struct {
	engine *Engine[C]
	stream Stream[Q, R]
	caller C
	id     uint64
	finish func(error)   // sends the status; nil where only returning does
	over   chan struct{} // closed when ended; only where finish is nil

	mu      sync.Mutex // guards the machine and what follows; held for moments only
	machine machine[Q, R]
	sending bool
	ended   bool
	status  error
	awaited int64 // since when the client owes a word, in Unix nanoseconds; zero: it does not
	timer   *time.Timer
	notify  []func(string) // for each type, made when first needed
	sends   sync.WaitGroup
	refused limiter // of log lines
	nacked  limiter
}

// finisher returns what ends a stream with a status while its handler waits in
// Recv, or nil. Only the handler's return does that by grpc-go's documentation;
// its transport stream has had this method since the beginning, and grpc-go
// itself calls it when a Send fails beside a waiting Recv. Where it is missing,
// the handler's goroutine waits beside a receiving one.
func finisher(ctx context.Context) func(error) {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface {
		WriteStatus(*status.Status) error
	})
	if !ok {
		return nil
	}
	return func(err error) { _ = s.WriteStatus(status.Convert(err)) }
}

// run serves the stream until it has ended and returns its status.
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

// serve receives until the stream ends, and returns when nothing runs any more.
func (r *runner[C, Q, R]) serve() {
	defer r.engine.leave(r)
	r.end(r.receive())
	for e := range r.machine.all() {
		if e.stop != nil {
			e.stop()
		}
	}
	r.sends.Wait()
	r.observe(Event[C]{Kind: Closed, Node: clip(r.machine.nodeID()), Err: r.status})
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
	switch {
	case !first:
	case r.finish != nil:
		r.finish(err)
	default:
		close(r.over)
	}
}

// receive takes requests until the client ends the stream (nil) or it breaks.
func (r *runner[C, Q, R]) receive() error {
	for {
		req, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.awaited = 0
		st, err := r.machine.request(req)
		r.mu.Unlock()
		if err != nil {
			return err
		}
		r.follow(st)
	}
}

// follow does what a request asked for: watches first, then lookups, so that no
// change falls between.
func (r *runner[C, Q, R]) follow(st step) {
	r.tell(st)
	for _, e := range st.dropped {
		if e.stop != nil {
			e.stop()
		}
	}
	for _, e := range st.added {
		source := r.engine.cfg.Types[st.typ].Source
		if stop, err := source.Watch(r.caller, e.name, r.notifier(st.typ)); err == nil {
			e.stop = stop
		}
	}
	if len(st.added) == 0 && !st.woken {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range st.added {
		r.machine.changed(st.typ, e.name)
	}
	r.kick()
}

// notifier returns the function that sources call for a type. It is called by the
// receiving goroutine only.
func (r *runner[C, Q, R]) notifier(typ int) func(string) {
	if r.notify == nil {
		r.notify = make([]func(string), len(r.engine.cfg.Types))
	}
	if r.notify[typ] == nil {
		r.notify[typ] = func(name string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.machine.changed(typ, name)
			r.kick()
		}
	}
	return r.notify[typ]
}

// kick has a goroutine send what is due; the caller holds the lock.
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
		typ, names, ok := r.due()
		if !ok {
			return
		}
		found := r.look(typ, names)
		if err := ending(found); err != nil {
			r.end(err)
			return
		}
		r.mu.Lock()
		response, b, ok := r.machine.respond(typ, found, time.Now())
		if ok {
			r.await()
		}
		r.mu.Unlock()
		r.tellRefused(typ, b.refused)
		if !ok {
			continue
		}
		if err := r.stream.Send(response); err != nil {
			r.end(err)
			return
		}
		r.tellPushed(typ, b)
	}
}

// await notes that the client owes a word from now on, if it did not before; the
// caller holds the lock.
func (r *runner[C, Q, R]) await() {
	if r.awaited == 0 {
		r.awaited = time.Now().UnixNano()
	}
}

// silent tells whether the client has owed a word since before.
func (r *runner[C, Q, R]) silent(before time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.awaited != 0 && r.awaited < before.UnixNano()
}

// ending returns the status to end with, where the source says so.
func ending(found []lookup) error {
	for _, f := range found {
		if end, ok := errors.AsType[*EndError](f.err); ok {
			return end.Status
		}
	}
	return nil
}

// due returns the next names to look up; false when there are none, and then
// this sender is gone as far as kick is concerned.
func (r *runner[C, Q, R]) due() (int, []string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.ended {
		if typ, names := r.machine.due(now); len(names) > 0 {
			return typ, names, true
		}
		r.arm(now)
	}
	r.sending = false
	return 0, nil, false
}

// arm sets the timer for what is held back; the caller holds the lock.
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

// look asks the source, with no lock held.
func (r *runner[C, Q, R]) look(typ int, names []string) []lookup {
	source := r.engine.cfg.Types[typ].Source
	found := make([]lookup, len(names))
	for i, name := range names {
		resource, err := source.Peek(r.caller, name)
		found[i] = lookup{name, resource, err}
	}
	return found
}
