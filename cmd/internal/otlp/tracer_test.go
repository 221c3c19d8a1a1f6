package otlp

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	otrace "go.opentelemetry.io/otel/trace"

	"github.com/countersign-dev/countersign/sdk/trace"
)

const remote = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recording returns a tracer and where its spans go.
func recording(sampler sdktrace.Sampler) (trace.Tracer, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return Tracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sampler))), spans
}

func TestSpansAreOpenTelemetrys(t *testing.T) {
	tracer, spans := recording(sdktrace.ParentBased(sdktrace.AlwaysSample()))
	ctx, root := trace.Begin(trace.WithParent(t.Context(), remote), tracer, "root")
	inside, child := trace.Start(ctx, "child", trace.Client)
	_, last := trace.Start(trace.Into(t.Context(), inside), "last", trace.Internal)
	child.Set("provider", "vault")
	last.End(errors.New("no way"))
	child.End(nil)
	root.End(nil)
	got := spans.GetSpans()
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	l, c, r := got[0], got[1], got[2]
	if r.Parent.SpanID().String() != "b7ad6b7169203331" || r.SpanContext.TraceID().String() != remote[3:35] || !r.Parent.IsRemote() || r.SpanKind != otrace.SpanKindServer {
		t.Errorf("%+v", r)
	}
	if c.Parent.SpanID() != r.SpanContext.SpanID() || c.SpanKind != otrace.SpanKindClient || len(c.Attributes) != 1 || c.Attributes[0].Value.AsString() != "vault" || c.Status.Code != codes.Unset {
		t.Errorf("%+v", c)
	}
	if l.Parent.SpanID() != c.SpanContext.SpanID() || l.Status.Code != codes.Error || l.Status.Description != "no way" {
		t.Errorf("%+v", l)
	}
	if want := "00-" + remote[3:35] + "-" + c.SpanContext.SpanID().String() + "-01"; trace.Parent(inside) != want {
		t.Errorf("got %s, want %s", trace.Parent(inside), want)
	}
}

func TestUnsampledTraceIsMarked(t *testing.T) {
	tracer, spans := recording(sdktrace.NeverSample())
	ctx, root := trace.Begin(t.Context(), tracer, "root")
	sent := trace.Parent(ctx)
	root.End(nil)
	if len(spans.GetSpans()) != 0 || len(sent) != 55 || sent[53:] != "00" || trace.Parent(trace.WithParent(t.Context(), sent)) != sent {
		t.Errorf("%q, %v", sent, spans.GetSpans())
	}
}
