package otlp

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// discarding is an exporter without a collector.
type discarding struct{}

func (discarding) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discarding) Shutdown(context.Context) error                             { return nil }

// BenchmarkIssuanceOn is what the spans of one issuance take, up to the queue.
func BenchmarkIssuanceOn(b *testing.B) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discarding{}))
	defer provider.Shutdown(b.Context()) //nolint:errcheck // it exports nothing
	tracer := Tracer(provider)
	b.ReportAllocs()
	for b.Loop() {
		ctx, root := trace.Begin(b.Context(), tracer, "certificate.issue")
		for _, name := range []string{"token", "key", "sign", "CSRSign"} {
			inside, span := trace.Start(ctx, name, trace.Internal)
			span.Set("provider", "vault")
			_ = trace.Parent(inside)
			span.End(nil)
		}
		root.End(nil)
	}
}
