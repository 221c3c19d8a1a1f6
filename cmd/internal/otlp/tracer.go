package otlp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	otrace "go.opentelemetry.io/otel/trace"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// Tracer returns a tracer that records with OpenTelemetry.
func Tracer(p otrace.TracerProvider) trace.Tracer {
	return tracer{p.Tracer("github.com/countersign-dev/countersign")}
}

type tracer struct{ spans otrace.Tracer }

var kinds = map[trace.Kind]otrace.SpanKind{
	trace.Internal: otrace.SpanKindInternal, trace.Server: otrace.SpanKindServer, trace.Client: otrace.SpanKindClient,
}

// Start implements [trace.Tracer].
func (t tracer) Start(ctx context.Context, name string, kind trace.Kind, parent string) trace.Recorder {
	if parent != "" && !otrace.SpanContextFromContext(ctx).IsValid() {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{trace.Header: parent})
	}
	_, span := t.spans.Start(ctx, name, otrace.WithSpanKind(kinds[kind]))
	return recorder{span}
}

type recorder struct{ span otrace.Span }

func (r recorder) In(ctx context.Context) context.Context {
	return otrace.ContextWithSpan(ctx, r.span)
}

func (r recorder) Parent() string {
	at := r.span.SpanContext()
	return fmt.Sprintf("00-%s-%s-%s", at.TraceID(), at.SpanID(), at.TraceFlags()&otrace.FlagsSampled)
}

func (r recorder) Set(key, value string) { r.span.SetAttributes(attribute.String(key, value)) }

func (r recorder) End(problem string) {
	if problem != "" {
		r.span.SetStatus(codes.Error, problem)
	}
	r.span.End()
}
