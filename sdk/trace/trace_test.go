package trace_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestWithoutTracerNothingHappensAndNothingIsAllocated(t *testing.T) {
	ctx := t.Context()
	allocated := testing.AllocsPerRun(100, func() {
		ctx, root := trace.Begin(ctx, nil, "a")
		ctx, span := trace.Start(ctx, "b", trace.Client)
		span.Set("key", "value")
		span.SetCount("n", 1000)
		span.End(context.Canceled)
		root.End(nil)
		if trace.Parent(trace.Into(t.Context(), ctx)) != "" {
			t.Error("there is a parent")
		}
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestSpansBelongToTheOneAbove(t *testing.T) {
	tracer := &tracetest.Tracer{}
	ctx, root := trace.Begin(t.Context(), tracer, "root")
	inside, child := trace.Start(ctx, "child", trace.Client)
	if trace.Parent(inside) == trace.Parent(ctx) || trace.Parent(t.Context()) != "" {
		t.Error("the child sends another's parent")
	}
	ended, cancel := context.WithCancel(inside)
	cancel()
	_, late := trace.Start(trace.Into(context.Background(), ended), "late", trace.Internal)
	late.End(nil)
	child.End(errors.New("no\nway " + strings.Repeat("x", 300)))
	root.End(nil)
	if s := tracer.All(t, "late")[0]; s.Above == nil || s.Above.Name != "child" {
		t.Errorf("%+v", s)
	}
	s := tracer.All(t, "child")[0]
	if s.Above == nil || s.Above.Name != "root" || s.Kind != trace.Client || !strings.HasPrefix(s.Failed, `no\nway`) || len(s.Failed) > 256 {
		t.Errorf("%+v", s)
	}
	if s := tracer.All(t, "root")[0]; s.Above != nil || s.Kind != trace.Internal || s.Failed != "" {
		t.Errorf("%+v", s)
	}
}

func TestAttributesAreCleanedAndCut(t *testing.T) {
	tracer := &tracetest.Tracer{}
	_, span := trace.Begin(t.Context(), tracer, "root")
	span.Set("name", "a\x00"+strings.Repeat("b", 300))
	span.Set("none", "")
	span.SetCount("attempt", 3)
	span.End(nil)
	got := tracer.All(t, "root")[0].Attrs
	if name := got["countersign.name"]; !strings.HasPrefix(name, `a\x00b`) || len(name) > 256 || got["countersign.attempt"] != "3" || len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestTraceOfTheCallerGoesOn(t *testing.T) {
	tracer := &tracetest.Tracer{}
	ctx := trace.WithParent(t.Context(), tracetest.Remote)
	if trace.Parent(ctx) != tracetest.Remote {
		t.Error("who does not trace does not pass it on")
	}
	ctx, root := trace.Begin(ctx, tracer, "root")
	root.End(nil)
	if s := tracer.All(t, "root")[0]; s.Remote != tracetest.Remote || s.Kind != trace.Server || trace.Parent(ctx) != s.Parent() {
		t.Errorf("%+v", s)
	}
}

func TestMalformedParentIsIgnored(t *testing.T) {
	good := tracetest.Remote
	for _, bad := range []string{
		"", "00", good[:54], good + "0", strings.ToUpper(good), "01" + good[2:], "ff" + good[2:],
		strings.Replace(good, "-b7", "_b7", 1), strings.Replace(good, "b7", "g7", 1), strings.Replace(good, "b7", "-7", 1),
		strings.Replace(good, "b7", "\r\n", 1), strings.Replace(good, good[3:35], strings.Repeat("0", 32), 1),
		strings.Replace(good, good[36:52], strings.Repeat("0", 16), 1),
	} {
		if got := trace.Parent(trace.WithParent(t.Context(), bad)); got != "" {
			t.Errorf("%q", got)
		}
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, span := trace.Start(ctx, "sign", trace.Internal)
		span.Set("key", "value")
		span.End(nil)
	}
}
