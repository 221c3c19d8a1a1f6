package lease

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestMain(m *testing.M) {
	if server := os.Getenv(stoppable); server != "" {
		beStopped(server)
		return
	}
	goleak.VerifyTestMain(m)
}

// apiServer holds one Lease, with an API server's optimistic concurrency. It is reached
// without sockets, or as an [http.Handler].
type apiServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	writes  int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.reply(w)
		return
	}
	var sent coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		panic(err)
	}
	created := r.Method == http.MethodPost
	if s.lease == nil && !created {
		s.reply(w)
		return
	}
	if created != (s.lease == nil) || !created && sent.ResourceVersion != strconv.Itoa(s.version) {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.put(&sent)
	s.reply(w)
}

func (s *apiServer) put(lease *coordinationv1.Lease) {
	s.version++
	s.writes++
	lease.ResourceVersion = strconv.Itoa(s.version)
	s.lease = lease
}

func (s *apiServer) reply(w http.ResponseWriter) {
	if s.lease == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.lease)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code)})
}

// holder is who holds the Lease by the server.
func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// written counts the writes.
func (s *apiServer) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// steal makes another the holder, as an operator may.
func (s *apiServer) steal(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stolen := s.lease.DeepCopy()
	stolen.Spec.HolderIdentity = &by
	s.put(stolen)
}

// remove deletes the Lease.
func (s *apiServer) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = nil
}

// wire is a replica's way to the server.
type wire struct {
	server *apiServer
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
	reply := httptest.NewRecorder()
	if !cut {
		w.server.ServeHTTP(reply, r)
	}
	if cut || deaf {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(slow)
	return reply.Result(), nil
}

// replica runs an elector whose lead calls the CA all the time.
type replica struct {
	*Lease
	*wire
	end  context.CancelFunc
	done chan struct{}
	log  logtest.Log

	mu      sync.Mutex
	ahead   time.Duration // of the wall clock
	terms   int
	leading bool
}

// clientOf returns a client of the server at an address.
func clientOf(transport http.RoundTripper, address string) kubernetes.Interface {
	config := &rest.Config{Host: address, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		panic(err)
	}
	return client
}

// replica begins to elect.
func (s *apiServer) replica(t *testing.T, name string, lead func(context.Context, *replica)) *replica {
	t.Helper()
	r := &replica{wire: &wire{server: s}, done: make(chan struct{})}
	var err error
	r.Lease, err = New(Config{
		Client: clientOf(r.wire, "http://server"), Namespace: "ra", Name: "countersign-ra", Identity: name, Now: r.now,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.end = func() {
		cancel()
		<-r.done
	}
	go func() {
		defer close(r.done)
		r.Run(ctx, func(ctx context.Context) {
			r.leads(true)
			defer r.leads(false)
			lead(ctx, r)
		})
	}()
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

// office is a CA that counts who calls it.
type office struct {
	mu    sync.Mutex
	calls int
	hang  bool // until the context ends
	deaf  chan struct{}
}

func (o *office) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
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

func (o *office) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}
