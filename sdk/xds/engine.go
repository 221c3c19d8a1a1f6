package xds

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Engine serves streams and fetches. Its methods may be called by any number of
// goroutines at once. Make one with [New].
type Engine[C any] struct {
	cfg     Config[C]
	urls    []string
	sotw    []policy // of the types, in each dialect
	delta   []policy
	prefix  string
	fetches limiter // of log lines about fetches

	mu    sync.Mutex
	open  map[ender]C
	epoch uint64 // counts the calls of End: an admission before one does not count after it
	last  uint64 // number of the last stream
	over  error  // set when the engine is closed
	quiet sync.WaitGroup
}

// ender is a stream or fetch that can be ended with a status.
type ender interface{ end(error) }

// New returns an engine. It starts nothing: every goroutine belongs to a stream. What is
// required and missing is an error.
func New[C any](cfg Config[C]) (*Engine[C], error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	// The prefix keeps a nonce of an agent that ran before from being current.
	e := &Engine[C]{cfg: cfg, prefix: rand.Text()[:8], open: map[ender]C{}}
	e.sotw, e.delta = policies(cfg)
	for _, t := range cfg.Types {
		e.urls = append(e.urls, t.URL)
	}
	return e, nil
}

// Stream serves one state-of-the-world stream until it ends, and returns the
// status to end it with. implied is the type of requests that name none, and the
// only type then; empty on an aggregated stream. The generated server streams
// (StreamSecrets, StreamAggregatedResources) fit as they are.
func (e *Engine[C]) Stream(stream Stream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse], implied string) error {
	return serve(e, stream, &sotw{e.session(e.sotw, implied)})
}

// StreamDelta serves one incremental stream (DeltaSecrets, DeltaAggregatedResources),
// otherwise like [Engine.Stream].
func (e *Engine[C]) StreamDelta(stream Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse], implied string) error {
	return serve(e, stream, &delta{e.session(e.delta, implied)})
}

func (e *Engine[C]) session(policies []policy, implied string) session {
	return newSession(policies, implied, e.prefix, e.cfg.Limits)
}

// serve admits the caller of a stream and serves him.
func serve[C, Q, R any](e *Engine[C], stream Stream[Q, R], m machine[Q, R]) error {
	r := &runner[C, Q, R]{engine: e, stream: stream, machine: m, finish: finisher(stream.Context())}
	if r.finish == nil {
		r.over = make(chan struct{})
	}
	var err error
	if r.caller, r.id, err = e.admit(stream.Context(), r); err != nil {
		return err
	}
	return r.run()
}

// admit asks who the caller is and enters him with what is to be ended. The
// engine's WaitGroup counts him until leave.
func (e *Engine[C]) admit(ctx context.Context, s ender) (caller C, id uint64, err error) {
	for {
		epoch := e.currentEpoch()
		if caller, err = e.cfg.Admit(ctx); err != nil {
			return caller, 0, err
		}
		e.mu.Lock()
		switch {
		case e.over != nil:
			defer e.mu.Unlock()
			return caller, 0, e.over
		case e.epoch == epoch:
			defer e.mu.Unlock()
			e.open[s] = caller
			e.quiet.Add(1)
			e.last++
			return caller, e.last, nil
		}
		e.mu.Unlock() // policy may have changed since Admit looked at it
	}
}

// meet shows the node of the first request and returns the caller as it is from then on.
func (e *Engine[C]) meet(ctx context.Context, s ender, caller C, node *core.Node) (C, error) {
	for e.cfg.Node != nil {
		epoch := e.currentEpoch()
		met, err := e.cfg.Node(ctx, caller, node)
		if err != nil {
			return caller, err
		}
		e.mu.Lock()
		if e.epoch == epoch {
			defer e.mu.Unlock()
			e.open[s] = met
			return met, nil
		}
		e.mu.Unlock() // End looked at the caller that he was
	}
	return caller, nil
}

func (e *Engine[C]) currentEpoch() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

// leave undoes admit.
func (e *Engine[C]) leave(s ender) {
	e.mu.Lock()
	delete(e.open, s)
	e.mu.Unlock()
	e.quiet.Done()
}

// End ends every stream and fetch whose caller matches with err, a status error,
// and returns how many. Change what Admit goes by first: whoever was admitted
// before is ended, whoever comes later is asked again.
func (e *Engine[C]) End(match func(C) bool, err error) int {
	return e.endAll(match, err, nil)
}

// EndSilent ends with err, a status error, every stream that has owed a word since
// before: its first request, or an answer to what it was sent. It returns how many.
func (e *Engine[C]) EndSilent(before time.Time, err error) int {
	e.mu.Lock()
	open := slices.Collect(maps.Keys(e.open))
	e.mu.Unlock()
	ended := 0
	for _, s := range open {
		if stream, ok := s.(interface{ silent(time.Time) bool }); ok && stream.silent(before) {
			s.end(err)
			ended++
		}
	}
	return ended
}

// Close ends everything with err (a status error; nil means Unavailable), refuses
// what comes later with the same, and returns when all is quiet. It may be called
// twice; the first error counts.
func (e *Engine[C]) Close(err error) {
	if err == nil {
		err = status.Error(codes.Unavailable, "the server is shutting down")
	}
	e.endAll(func(C) bool { return true }, err, err)
	e.quiet.Wait()
}

func (e *Engine[C]) endAll(match func(C) bool, err, over error) int {
	e.mu.Lock()
	e.epoch++
	if e.over == nil {
		e.over = over
	}
	matching := map[ender]C{}
	maps.Copy(matching, e.open)
	e.mu.Unlock()
	ended := 0
	for s, caller := range matching { // match and end are called without the lock
		if match(caller) {
			s.end(err)
			ended++
		}
	}
	return ended
}

// Streams returns how many streams and fetches are open.
func (e *Engine[C]) Streams() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open)
}
