package pluginhost

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
)

func TestStartIsATraceWithItsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tracer := newWorld("good"), &tracetest.Tracer{}
		w.p.opts.Tracer = tracer
		if err := w.p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.crashes(t) // a restart is another trace
		if err := w.close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		starts := tracer.All(t, "provider.start")
		if len(starts) != 2 || starts[0].Attrs["countersign.provider"] == "" || starts[1].Attrs["countersign.generation"] != "2" {
			t.Fatalf("starts %+v", starts)
		}
		for _, step := range []string{"launch", "connect", "metadata", "resolve", "validate", "configure", "ready"} {
			spans := tracer.All(t, step)
			want := 2
			if step == "validate" {
				want = 1 // the settings were taken before
			}
			if len(spans) != want || slices.ContainsFunc(spans, func(s tracetest.Span) bool { return s.Above == nil || s.Above.Name != "provider.start" }) {
				t.Errorf("%s: %d spans, want %d: %+v", step, len(spans), want, spans)
			}
		}
	})
}
