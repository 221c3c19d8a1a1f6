package lease

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestMain(m *testing.M) {
	if server := os.Getenv(stoppable); server != "" {
		beStopped(server)
		return
	}
	goleak.VerifyTestMain(m)
}

// apiServer holds Leases.
type apiServer struct{ *kubetest.Fake }

func newAPIServer() apiServer { return apiServer{kubetest.NewFake()} }

func (s apiServer) lease() *coordinationv1.Lease {
	return kubetest.Get[coordinationv1.Lease](s.Fake, "leases", "ra", "countersign-ra")
}

// holder is who holds the Lease by the server.
func (s apiServer) holder() string {
	l := s.lease()
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// steal makes another the holder, as an operator may.
func (s apiServer) steal(by string) {
	l := s.lease()
	l.Spec.HolderIdentity = &by
	s.Put(l)
}

// remove deletes the Lease.
func (s apiServer) remove() { s.Remove("leases", "ra", "countersign-ra") }

// wire is a replica's way to the server.
type wire struct {
	server http.RoundTripper
	mu     sync.Mutex
	cut    bool // requests get no answer
	deaf   bool // they arrive, and the answer is lost
	slow   time.Duration
}

func (w *wire) set(cut, deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.deaf = cut, deaf
}

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	cut, deaf, slow := w.cut, w.deaf, w.slow
	w.mu.Unlock()
	var reply *http.Response
	var err error
	if !cut {
		reply, err = w.server.RoundTrip(r)
	}
	if cut || deaf {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(slow)
	return reply, err
}

// replica runs an elector whose lead calls the CA all the time.
type replica struct {
	*Lease
	*wire
	end context.CancelFunc
	log logtest.Log

	mu      sync.Mutex
	ahead   time.Duration // of the wall clock
	terms   int
	leading bool
}

// replica begins to elect.
func (s apiServer) replica(t *testing.T, name string, lead func(context.Context, *replica)) *replica {
	t.Helper()
	r := &replica{wire: &wire{server: s.Fake}}
	var err error
	r.Lease, err = New(Config{
		Client: kubetest.ClientBy(r.wire, "http://server"), Namespace: "ra", Name: "countersign-ra", Identity: name, Now: r.now,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.end = background.Run(func(ctx context.Context) {
		r.Run(ctx, func(ctx context.Context) {
			r.leads(true)
			defer r.leads(false)
			lead(ctx, r)
		})
	})
	t.Cleanup(r.end)
	return r
}

func untilEnd(ctx context.Context, _ *replica) { <-ctx.Done() }

func (r *replica) leads(now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading = now; now {
		r.terms++
	}
}

// led counts the terms that have begun.
func (r *replica) led() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms
}

func (r *replica) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading
}

func (r *replica) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Round(0).Add(r.ahead)
}

func (r *replica) jump(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += by
}

// countingCA counts its calls.
type countingCA struct {
	mu    sync.Mutex
	calls int
	hang  bool // until the context ends
	deaf  chan struct{}
}

func (o *countingCA) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
	o.mu.Lock()
	o.calls++
	hang := o.hang
	o.mu.Unlock()
	if o.deaf != nil {
		<-o.deaf
	}
	if hang {
		<-ctx.Done()
		return ca.Certificate{}, ca.Errorf(ca.Denied, "a last word: %w", ctx.Err())
	}
	return ca.Certificate{Chain: []byte("chain")}, nil
}

func (o *countingCA) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}
