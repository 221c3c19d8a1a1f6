package xds

import (
	"context"
	"log/slog"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
)

// fetch is one unary request in progress.
type fetch struct{ cancel context.CancelCauseFunc }

func (f *fetch) end(err error) { f.cancel(err) }

// Fetch answers one unary request. It waits for names that are not ready until ctx ends.
// Refused names are left out; if none remain the error is NotFound, except for the wildcard
// and complete types, which return an empty response. implied is as in [Engine.Stream].
func (e *Engine[C]) Fetch(ctx context.Context, req *discovery.DiscoveryRequest, implied string) (*discovery.DiscoveryResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &fetch{cancel}
	caller, _, err := e.admit(ctx, f)
	if err != nil {
		return nil, err
	}
	defer e.leave(f)
	m := &sotw{e.session(e.sotw, implied)}
	st, err := m.request(req)
	if err != nil {
		return nil, err
	}
	if caller, err = e.meet(ctx, f, caller, st.node); err != nil {
		return nil, err
	}
	if st.unserved != "" {
		return nil, status.Errorf(codes.InvalidArgument, "type_url %q is not served", st.unserved)
	}
	found, err := e.wait(ctx, caller, m, st)
	if err != nil {
		return nil, err
	}
	response, b, ok := m.respond(st.typ, found, time.Now())
	e.tellFetch(caller, st, b)
	switch {
	case b.full:
		return nil, status.Errorf(codes.ResourceExhausted, "the resources have more than %d bytes, ask for fewer at once", maxResponse)
	case !ok:
		return nil, status.Error(codes.NotFound, "none of the resource_names is known")
	}
	return response, nil
}

// wait returns the source's answer for each name once all are ready.
func (e *Engine[C]) wait(ctx context.Context, caller C, m *sotw, st step) ([]lookup, error) {
	w := &waiter[C]{caller: caller, source: e.cfg.Types[st.typ].Source, m: m, typ: st.typ, changed: make(chan struct{}, 1)}
	defer w.stop()
	w.watch(st.added)
	if st.wild != nil {
		w.watchList()
	}
	for {
		found, ready := w.look()
		if err := ending(found); err != nil {
			return nil, err
		}
		if ready {
			return found, nil
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return nil, fetchError(context.Cause(ctx))
		}
	}
}

// fetchError returns the status that ended the fetch, or that of its context.
func fetchError(cause error) error {
	if _, ok := status.FromError(cause); ok {
		return cause
	}
	return status.FromContextError(cause).Err()
}

// tellFetch reports the outcome of a fetch. Refused names are logged once a minute
// across all fetches.
func (e *Engine[C]) tellFetch(caller C, st step, b batch) {
	refused := text.CleanAll(slices.Concat(st.refused, b.refused))
	if len(refused) == 0 {
		return
	}
	e.cfg.Observe(Event[C]{Kind: Refused, Caller: caller, TypeURL: st.url, Client: ClientText{Names: refused}})
	if unsaid, ok := e.fetches.allow(time.Now(), 1, len(refused)); ok {
		e.cfg.Log.Log(context.Background(), slog.LevelWarn, "name unknown or not permitted, omitted from fetch",
			"type", st.url, "name", refused[0], "caller", caller, "suppressed", unsaid)
	}
}
