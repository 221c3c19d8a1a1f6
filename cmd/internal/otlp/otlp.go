// Package otlp sends traces to an OpenTelemetry collector. [Open] goes by OpenTelemetry's own
// variables (OTEL_EXPORTER_OTLP_ENDPOINT, …) and does nothing without them. It is the only
// package of the house that compiles OpenTelemetry; all others know sdk/trace. [Tracer] is for
// embedders who set up OpenTelemetry themselves.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// flush is how long Close waits for the collector.
const flush = 2 * time.Second

// Options say who traces.
type Options struct {
	// Service and Version name the program, unless OTEL_SERVICE_NAME or
	// OTEL_RESOURCE_ATTRIBUTES do.
	Service, Version string
	// Getenv reads a variable. OpenTelemetry's libraries read the environment of the process,
	// so anything but [os.Getenv] can only hide variables from the checks.
	Getenv func(name string) string
	// Log gets a warning once a minute while the collector does not take spans.
	Log *slog.Logger
}

// Exporter sends spans in the background. A nil Exporter is one that is off.
type Exporter struct {
	provider *sdktrace.TracerProvider
	exporter *exporter
}

// exporter exports nothing any more once it is cut off.
type exporter struct {
	*otlptrace.Exporter
	cut atomic.Bool
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.Exporter.ExportSpans(ctx, spans)
	if e.cut.Load() {
		return nil
	}
	return err
}

// Open returns nil if the environment asks for no traces. It waits for no collector; an error
// names the variable that is wrong, and no value that may be secret. OpenTelemetry reports what
// goes wrong later in one place for the whole process: the log of the last Open.
func Open(ctx context.Context, o Options) (*Exporter, error) {
	s, err := read(o.Getenv)
	if err != nil || !s.on {
		return nil, err
	}
	listen(&complaints{log: o.Log, hidden: s.hidden})
	s.warn(o.Log)
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	to, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceVersion(o.Version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		otel.Handle(err) // the rest of the program's attributes are set
	}
	e := &exporter{Exporter: to}
	return &Exporter{sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(about)), e}, nil
}

// Tracer returns the tracer to configure; nil if the exporter is off.
func (e *Exporter) Tracer() trace.Tracer {
	if e == nil {
		return nil
	}
	return Tracer(e.provider)
}

// Close sends what is left, for 2 seconds at most.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flush)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
		e.exporter.cut.Store(true)
		_ = e.exporter.Shutdown(ctx) // it cuts off the request in flight
	}
}
