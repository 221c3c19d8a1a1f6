package ra_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// instant answers each request with the same certificate: its ID is the request's.
type instant struct{ *ratest.CA }

func (i instant) CSRSign(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
	var reply ca.Certificate
	var known bool
	i.Set(func() { reply, known = i.Known[req.SubjectID] })
	if known {
		return reply, nil
	}
	reply, err := i.Sign(req)
	i.Set(func() { i.Known[req.SubjectID] = reply })
	return reply, err
}

func benchEngine(b *testing.B, limits ra.Limits) *ra.Engine {
	b.Helper()
	return ratest.Engine(b, ra.Config{
		Policy: policy(b, mesh()), Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler), Doors: []ra.Door{{Name: istio}},
		Authorities: []ra.Authority{{Name: "ca", Client: instant{newKnowingCA(b)}, Limits: limits}},
		Budget:      ra.Budget{Holder: 1 << 30, Namespace: 1 << 30},
	})
}

func newKnowingCA(b *testing.B) *ratest.CA {
	o := ratest.NewCA(b)
	o.Known = map[string]ca.Certificate{}
	return o
}

// BenchmarkIssue is what one certificate costs besides the authority: policy, CSR, queue,
// checks of the reply, audit line.
func BenchmarkIssue(b *testing.B) {
	e := benchEngine(b, ra.Limits{Rate: 1e9, Burst: 1 << 30, InFlight: 64})
	defer e.Close()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		req := ra.Request{Subject: web(), Door: istio, CSR: empty(0), TTL: time.Hour, Object: fmt.Sprint(n)}
		if _, err := ra.Certify(b.Context(), e, req); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkQueuedMemory is what a request that waits takes, its goroutine included.
func BenchmarkQueuedMemory(b *testing.B) {
	for b.Loop() {
		const waiting = 10000
		e := benchEngine(b, ra.Limits{Rate: 1e-6, Burst: 1})
		before := heap()
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, waiting)
		for n := range waiting {
			req := ra.Request{Subject: web(), Door: istio, CSR: empty(0)}
			req.Subject.PodUID = fmt.Sprint(n)
			go func() { _, err := ra.Certify(ctx, e, req); done <- err }()
		}
		for e.Status()[0].Waiting < waiting-1 {
			runtime.Gosched()
		}
		b.ReportMetric(float64(heap()-before)/waiting, "B/request")
		cancel()
		for range waiting - 1 {
			<-done
		}
		e.Close()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
