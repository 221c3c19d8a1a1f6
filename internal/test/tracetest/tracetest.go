// Package tracetest records spans in memory: [Tracer].
package tracetest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// Remote is the traceparent of another process.
const Remote = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Tracer is a [trace.Tracer]. The zero value is ready.
type Tracer struct {
	mu    sync.Mutex
	spans []*Span
}

// Span is one that was begun.
type Span struct {
	Name   string
	Kind   trace.Kind
	Above  *Span
	Remote string // the parent in another process
	Attrs  map[string]string
	Ended  int
	Failed string

	of *Tracer
	id string
}

type key struct{}

// Start implements [trace.Tracer].
func (t *Tracer) Start(ctx context.Context, name string, kind trace.Kind, parent string) trace.Recorder {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &Span{Name: name, Kind: kind, Remote: parent, Attrs: map[string]string{}, of: t}
	s.Above, _ = ctx.Value(key{}).(*Span)
	t.spans = append(t.spans, s)
	s.id = fmt.Sprintf("00-00000000000000000000000000000001-%016x-01", len(t.spans))
	return s
}

// In implements [trace.Recorder].
func (s *Span) In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// Parent implements [trace.Recorder].
func (s *Span) Parent() string { return s.id }

// Set implements [trace.Recorder].
func (s *Span) Set(key, value string) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.Attrs[key] = value
}

// End implements [trace.Recorder].
func (s *Span) End(problem string) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.Ended++
	s.Failed = problem
}

// All returns the spans of that name as they are now, in the order of their begin. All must
// have ended once.
func (t *Tracer) All(tb testing.TB, name string) (found []Span) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.spans {
		if s.Name != name {
			continue
		}
		if s.Ended != 1 {
			tb.Errorf("the span %s ended %d times", name, s.Ended)
		}
		now := *s
		now.Attrs = maps.Clone(s.Attrs)
		found = append(found, now)
	}
	return found
}
