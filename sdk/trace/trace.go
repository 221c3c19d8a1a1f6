// Package trace follows one issuance from the request to the authority and back. Code calls
// [Begin] where a trace may start and [Start] for what happens within; who calls another
// process sends it [Parent]. Without a [Tracer], the default, they do nothing.
//
// The package uses no telemetry library: cmd/internal/otlp has a Tracer that exports to a
// collector, and embedders can adapt their own in a few lines.
package trace

import (
	"context"
	"strconv"

	"github.com/countersign-dev/countersign/internal/text"
)

// Header is the name of the HTTP header, and of the gRPC metadata, with the parent of a
// request: W3C Trace Context.
const Header = "traceparent"

// Kind is what a span stands for.
type Kind int

// Internal work, the answer to a client's request, the call of another process.
const (
	Internal Kind = iota
	Server
	Client
)

// Tracer records spans. It is safe for concurrent use, and must not block: a collector that
// hangs delays no certificate.
type Tracer interface {
	// Start begins a span below the one that [Recorder.In] has put into ctx; without one,
	// below parent, the valid traceparent of another process; without that, a new trace.
	Start(ctx context.Context, name string, kind Kind, parent string) Recorder
}

// Recorder is a span of a [Tracer], used by one goroutine at a time.
type Recorder interface {
	// In returns ctx with the span, for those below it.
	In(ctx context.Context) context.Context
	// Parent returns the span's own traceparent, also if the span is not recorded.
	Parent() string
	// Set adds an attribute.
	Set(key, value string)
	// End ends the span. Problem is empty after a success, otherwise the text as in the log.
	End(problem string)
}

// Span is one step of a trace. All methods of a nil Span do nothing.
type Span struct {
	tracer Tracer
	record Recorder
}

type (
	spanKey   struct{}
	parentKey struct{}
)

// Begin begins a trace, or goes on with that of the caller (see [WithParent]), and returns ctx
// with the span. The span is nil if the tracer is.
func Begin(ctx context.Context, t Tracer, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	parent, _ := ctx.Value(parentKey{}).(string)
	kind := Internal
	if parent != "" {
		kind = Server
	}
	return begin(ctx, t, name, kind, parent)
}

// Start begins a span below that of ctx. It is nil if there is none.
func Start(ctx context.Context, name string, kind Kind) (context.Context, *Span) {
	above, _ := ctx.Value(spanKey{}).(*Span)
	if above == nil {
		return ctx, nil
	}
	return begin(ctx, above.tracer, name, kind, "")
}

func begin(ctx context.Context, t Tracer, name string, kind Kind, parent string) (context.Context, *Span) {
	s := &Span{t, t.Start(ctx, name, kind, parent)}
	return s.in(ctx), s
}

func (s *Span) in(ctx context.Context) context.Context {
	return context.WithValue(s.record.In(ctx), spanKey{}, s)
}

// Into returns ctx with the span of another context, for work that outlives that.
func Into(ctx, from context.Context) context.Context {
	s, _ := from.Value(spanKey{}).(*Span)
	if s == nil {
		return ctx
	}
	return s.in(ctx)
}

// Set adds an attribute, as clean as in a log: no key, token or header belongs there.
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.record.Set("countersign."+key, text.Clean(value))
	}
}

// SetCount adds a number.
func (s *Span) SetCount(key string, n int) {
	if s != nil {
		s.record.Set("countersign."+key, strconv.Itoa(n))
	}
}

// End ends the span. The error must not contain a token, as in a log.
func (s *Span) End(err error) {
	switch {
	case s == nil:
	case err == nil:
		s.record.End("")
	default:
		s.record.End(text.Clean(err.Error()))
	}
}

// Parent returns the traceparent to send to another process: of the span in ctx, else that of
// [WithParent]; empty without any.
func Parent(ctx context.Context) string {
	if s, _ := ctx.Value(spanKey{}).(*Span); s != nil {
		return s.record.Parent()
	}
	parent, _ := ctx.Value(parentKey{}).(string)
	return parent
}

// WithParent returns ctx with the traceparent that a request came with. One that is malformed
// is ignored.
func WithParent(ctx context.Context, parent string) context.Context {
	if !valid(parent) {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, parent)
}

// valid reports whether parent is a traceparent of version 00, the only one so far:
// 00-TRACE-SPAN-FLAGS in lower-case hexadecimal, neither ID zero.
func valid(parent string) bool {
	const layout = "00-00000000000000000000000000000000-0000000000000000-00"
	if len(parent) != len(layout) || parent[:3] != "00-" || parent[3:35] == layout[3:35] || parent[36:52] == layout[36:52] {
		return false
	}
	for i, c := range []byte(parent) {
		hex := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
		if dash := layout[i] == '-'; dash != (c == '-') || !dash && !hex {
			return false
		}
	}
	return true
}
