package istioca_test

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestTraceOfCallerGoesOn(t *testing.T) {
	tracer := &tracetest.Tracer{}
	inBubble(t, func(m *mesh, p *parts) { shop(m, p); p.engine.Tracer = tracer }, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		caller := m.as(conn, "web-token", home)
		ctx := metadata.AppendToOutgoingContext(t.Context(), trace.Header, tracetest.Remote)
		if _, err := caller.askUntil(ctx, wish{identity: web}); err != nil {
			t.Fatal(err)
		}
		caller.must(wish{identity: web})
	})
	all := tracer.All(t, "certificate.request")
	if len(all) != 2 || all[0].Remote != tracetest.Remote || all[1].Remote != "" || len(tracer.All(t, "sign")) != 2 {
		t.Errorf("%+v", all)
	}
}
