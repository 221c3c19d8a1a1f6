package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
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
	first    bool // of the stream
	node     *core.Node
	wild     *wildcard // to be watched, then listed
	unwild   *wildcard // to be watched no more
	unserved string    // the type, where it is not served
	woken    bool      // something became due
	acked    bool
	nacked   bool
	version  string   // of the response that was acknowledged or refused; empty where another went out since
	names    []string // that were refused with it
	reason   string
}

// task is what a stream has to do next: to ask for the list of a type, or to look up names.
type task struct {
	typ   int
	list  bool
	names []string
}

// machine is the protocol of one stream in one dialect, without I/O.
type machine[Q, R any] interface {
	request(Q) (step, error)
	changed(typ int, name string)
	relist(typ int)
	listed(typ int, names []string) (added, dropped []*entry)
	due(now time.Time) (task, bool)
	respond(typ int, found []lookup, now time.Time) (response R, b batch, ok bool)
	wake() time.Time
	nodeID() string
	stop()
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
	r.sends.Wait() // a sender may watch what is listed
	r.machine.stop()
	r.observe(Event[C]{Kind: Closed, Node: text.Clean(r.machine.nodeID()), Err: r.status})
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
		if st.first {
			if r.caller, err = r.engine.meet(r.stream.Context(), r, r.caller, st.node); err != nil {
				return err
			}
		}
		r.follow(st)
	}
}

// follow does what a request asked for: watches first, then lookups, so that no
// change falls between.
func (r *runner[C, Q, R]) follow(st step) {
	r.tell(st)
	r.watchList(st)
	r.watch(st.typ, st.added, st.dropped)
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

// push looks names up and sends what there is to say.
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
	if !ok {
		return nil
	}
	if err := r.stream.Send(response); err != nil {
		return err
	}
	r.tellPushed(t.typ, b)
	return nil
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

// due returns what is to be done next; false when there is nothing, and then
// this sender is gone as far as kick is concerned.
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
