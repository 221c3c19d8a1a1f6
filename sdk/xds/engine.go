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

// Engine serves streams and fetches. Its methods are safe for concurrent use. Create
// one with [New].
type Engine[C any] struct {
	cfg     Config[C]
	urls    []string
	sotw    []policy // one per type, for each dialect
	delta   []policy
	prefix  string
	fetches limiter // limits log lines about fetches
	lines   callers // and about streams

	mu    sync.Mutex
	open  map[ender]C
	epoch uint64 // counts calls of End; an admission from before End is void after it
	last  uint64 // number of the last stream
	over  error  // set once the engine is closed
	quiet sync.WaitGroup
}

// ender is a stream or fetch that a status can end.
type ender interface{ end(error) }

// New returns an engine, or an error if a required setting is missing. It starts no
// goroutine: every goroutine belongs to a stream.
func New[C any](cfg Config[C]) (*Engine[C], error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	// The prefix invalidates nonces from an earlier run of the agent.
	e := &Engine[C]{cfg: cfg, prefix: rand.Text()[:8], open: map[ender]C{}}
	e.sotw, e.delta = policies(cfg)
	for _, t := range cfg.Types {
		e.urls = append(e.urls, t.URL)
	}
	return e, nil
}

// Stream serves one state-of-the-world stream until it ends and returns its final
// status. implied is the type URL for requests without one, and then the only type
// allowed; empty on an aggregated stream. It accepts generated server streams
// (StreamSecrets, StreamAggregatedResources) directly.
func (e *Engine[C]) Stream(stream Stream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse], implied string) error {
	return serve(e, stream, &sotw{e.session(e.sotw, implied)})
}

// StreamDelta serves one incremental stream (DeltaSecrets, DeltaAggregatedResources).
// Otherwise it behaves like [Engine.Stream].
func (e *Engine[C]) StreamDelta(stream Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse], implied string) error {
	return serve(e, stream, &delta{e.session(e.delta, implied)})
}

func (e *Engine[C]) session(policies []policy, implied string) session {
	return newSession(policies, implied, e.prefix, e.cfg.Limits)
}

// serve admits the caller of a stream and runs the stream.
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

// admit determines the caller and registers s so that it can be ended. The engine's
// WaitGroup counts it until leave.
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
		e.mu.Unlock() // policy may have changed since Admit checked it
	}
}

// meet passes the node of the first request to Config.Node and returns the resulting caller.
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
		e.mu.Unlock() // End matched against the previous caller
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

// End ends every stream and fetch whose caller matches with err, a status error, and
// returns how many it ended. Update the policy behind Admit first: callers admitted
// earlier are ended, and later ones are checked against the new policy.
func (e *Engine[C]) End(match func(C) bool, err error) int {
	return e.endAll(match, err, nil)
}

// EndSilent ends with err, a status error, every stream whose client has owed a message since
// before the given time: its first request, or an ACK or NACK. It returns how many it ended.
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

// Close ends everything with err (a status error; nil means Unavailable), refuses new
// streams with the same error, and returns when all goroutines are done. It may be
// called twice; the first error counts.
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
	for s, caller := range matching { // match and end run without the lock
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
