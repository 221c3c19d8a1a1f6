package access

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errDown = errors.New("connection refused")

	web = Subject{"east", "shop", "web"}
)

// tls is a secret that nobody holds, held of one that has been served.
const tls, held = "kubernetes://tls", "kubernetes://held"

// api stands in for the API servers of all clusters.
type api struct {
	mu     sync.Mutex
	allow  map[Subject]bool
	err    error
	hang   bool // until the context ends
	slow   time.Duration
	gone   map[string]bool // clusters that were removed
	off    map[string]bool // clusters that are not connected
	asked  []Subject
	flying map[string]int
	most   map[string]int // at once
}

func newAPI(allowed ...Subject) *api {
	f := &api{allow: map[Subject]bool{}, gone: map[string]bool{}, off: map[string]bool{}, flying: map[string]int{}, most: map[string]int{}}
	for _, s := range allowed {
		f.allow[s] = true
	}
	return f
}

func (f *api) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// mostOf is how many reviews of a cluster were on their way.
func (f *api) mostOf(cluster string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most[cluster]
}

func (f *api) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func (f *api) reviews(cluster string) (Reviews, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off[cluster] {
		return nil, true
	}
	return server{f, cluster}, !f.gone[cluster]
}

type server struct {
	*api
	cluster string
}

func (s server) Create(ctx context.Context, q *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	hang, slow := s.begin(q)
	defer s.set(func() { s.flying[s.cluster]-- })
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	q.Status.Allowed = s.allow[s.subject(q)]
	return q, s.err
}

func (s server) subject(q *authorizationv1.SubjectAccessReview) Subject {
	namespace := q.Spec.ResourceAttributes.Namespace
	return Subject{s.cluster, namespace, q.Spec.User[len("system:serviceaccount:"+namespace+":"):]}
}

func (s server) begin(q *authorizationv1.SubjectAccessReview) (hang bool, slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, s.subject(q))
	s.flying[s.cluster]++
	s.most[s.cluster] = max(s.most[s.cluster], s.flying[s.cluster])
	return s.hang, s.slow
}

// inBubble runs a test with an Access in a bubble with a clock of its own.
func inBubble(t *testing.T, f *api, cfg Config, test func(t *testing.T, a *Access)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Reviews = f.reviews
		a, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		test(t, a)
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settled is what Peek answers once the API server was asked, if need be.
func settled(a *Access, s Subject) error {
	if err := a.Peek(s, tls); !errors.Is(err, ErrNotReady) {
		return err
	}
	synctest.Wait()
	return a.Peek(s, tls)
}

// ear counts how often it was told.
type ear struct{ atomic.Int32 }

func (e *ear) notify() { e.Add(1) }

func watched(a *Access, s Subject) (told *ear, stop func()) {
	told = &ear{}
	return told, a.Watch(s, told.notify)
}

// clock is a wall clock that can be set.
type shiftedClock struct{ off atomic.Int64 }

func (c *shiftedClock) now() time.Time        { return time.Now().Add(time.Duration(c.off.Load())) }
func (c *shiftedClock) jump(by time.Duration) { c.off.Add(int64(by)) }
func (f *api) allows(s Subject, yes bool)     { f.set(func() { f.allow[s] = yes }) }
func (f *api) fails(err error)                { f.set(func() { f.err = err }) }
