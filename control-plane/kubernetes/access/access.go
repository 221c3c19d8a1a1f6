// Package access reports whether a service account may read the secrets of its namespace: it asks
// the API server of the account's cluster (authorization.k8s.io/v1, SubjectAccessReview for list
// secrets) and caches the answer. countersign-discovery creates an [Access] with [New]; each review
// runs in its own goroutine, and watchers are notified when an answer changes.
//
// Unless [Config] says otherwise, a yes is valid for 5 minutes and a no for 1. While it is watched,
// a yes is refreshed in its last fifth, so that a brief API server outage has no effect. An error
// never extends a yes: after its expiry an error is a no, for as long as a no is valid.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/clock"
)

// Errors that [Access.Peek] returns, possibly wrapped ([errors.Is]), if the answer is not yes.
var (
	// ErrDenied means that the API server said no, or could not be asked.
	ErrDenied = errors.New("not allowed to list the secrets of its namespace")
	// ErrNotReady means that a review is in progress; watchers will be notified.
	ErrNotReady = errors.New("access review in progress")
	// ErrFull means that too many service accounts of the cluster are watched.
	ErrFull = fmt.Errorf("%w: too many service accounts of its cluster are connected", ErrDenied)
)

const (
	defaultAllow    = 5 * time.Minute
	defaultDeny     = time.Minute
	defaultDeadline = 10 * time.Second
	defaultParallel = 16
	defaultMost     = 10000
)

// Subject is a verified service account of a cluster.
type Subject struct{ Cluster, Namespace, ServiceAccount string }

// Reviews is one cluster's API for SubjectAccessReviews, as in client-go. Create must
// end with its context.
type Reviews interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Config configures an [Access]. Reviews is required.
type Config struct {
	// Reviews returns the API of a cluster, or false if the cluster is not connected. It is
	// called for each review and must not block. Our account there needs permission to
	// create subjectaccessreviews (the role system:auth-delegator). Required.
	Reviews func(cluster string) (Reviews, bool)
	// Allow and Deny are how long a yes and a no are valid. Default: 5 minutes and 1
	// minute, as in istiod.
	Allow, Deny time.Duration
	// Deadline limits one review. A review waits at most twice as long for its turn.
	// Default: 10 s.
	Deadline time.Duration
	// Parallel is how many reviews of a cluster run at once. Default: 16.
	Parallel int
	// Most is how many service accounts of a cluster are known at once; unwatched ones
	// are evicted. Default: 10,000.
	Most int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log receives failures to reach API servers. Default: no logging.
	Log *slog.Logger
}

// Counts are statistics of an [Access] since its creation.
type Counts struct {
	Allowed, Denied, Failed uint64 // results of reviews
	Known                   int    // service accounts known now
}

// Access reports who may read secrets. It is safe for concurrent use.
type Access struct {
	cfg     Config
	ctx     context.Context // parent of all reviews
	cancel  context.CancelFunc
	flights sync.WaitGroup

	mu     sync.Mutex
	desks  map[string]*desk // by cluster
	counts Counts
	closed bool
}

// New checks the settings; it asks nothing before the first Peek or Watch.
func New(cfg Config) (*Access, error) {
	if cfg.Reviews == nil {
		return nil, errors.New("access: Config.Reviews is required")
	}
	if cfg.Deadline < 0 || cfg.Parallel < 0 || cfg.Most < 0 {
		return nil, fmt.Errorf("access: Config has Deadline %s, Parallel %d and Most %d: they must not be negative", cfg.Deadline, cfg.Parallel, cfg.Most)
	}
	cfg.setDefaults()
	if cfg.Allow < time.Second || cfg.Deny < time.Second {
		return nil, fmt.Errorf("access: Config has Allow %s and Deny %s: they must be at least 1s", cfg.Allow, cfg.Deny)
	}
	a := &Access{cfg: cfg, desks: map[string]*desk{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

func (c *Config) setDefaults() {
	c.Allow, c.Deny = cmp.Or(c.Allow, defaultAllow), cmp.Or(c.Deny, defaultDeny)
	c.Deadline = cmp.Or(c.Deadline, defaultDeadline)
	c.Parallel, c.Most = cmp.Or(c.Parallel, defaultParallel), cmp.Or(c.Most, defaultMost)
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Peek returns nil if s may list the secrets of its namespace. It never blocks: an
// unknown answer starts a review and is [ErrNotReady] until it ends.
func (a *Access) Peek(s Subject) error {
	if !a.connected(s) {
		return ErrDenied
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entry(s)
	if e == nil {
		return ErrFull
	}
	if e.counts(a.cfg.Now()) {
		return e.said()
	}
	e.waited = true
	a.ask(e)
	return ErrNotReady
}

// connected reports whether the subject's cluster is connected. Without its cluster a
// subject has no rights, whatever was answered before.
func (a *Access) connected(s Subject) bool {
	if s.Cluster == "" || s.Namespace == "" || s.ServiceAccount == "" {
		return false
	}
	_, ok := a.cfg.Reviews(s.Cluster)
	return ok
}

// Watch calls notify after changes of Peek's result, and when an answer arrives that
// Peek lacked, until stop. notify must not block; a call already in progress may finish
// after stop returns. The error is [ErrFull].
func (a *Access) Watch(s Subject, notify func()) (stop func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entry(s)
	if e == nil {
		return nil, ErrFull
	}
	w := &watch{notify: notify}
	e.watches[w] = struct{}{}
	a.arm(e)
	return func() { a.leave(e, w) }, nil
}

func (a *Access) leave(e *entry, w *watch) {
	w.gone.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(e.watches, w)
	if len(e.watches) == 0 {
		e.disarm()
	}
}

// Forget drops the answers of a cluster's API server, for example after it was
// replaced. Watched subjects are reviewed again.
func (a *Access) Forget(cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	desk := a.desks[cluster]
	if desk == nil {
		return
	}
	for _, e := range desk.entries {
		e.forget()
		if len(e.watches) == 0 {
			delete(desk.entries, e.subject)
			continue
		}
		a.ask(e)
	}
	if len(desk.entries) == 0 {
		delete(a.desks, cluster)
	}
}

// Counts returns the current statistics.
func (a *Access) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := a.counts
	for _, desk := range a.desks {
		counts.Known += len(desk.entries)
	}
	return counts
}

// Close cancels the reviews and returns when all goroutines are done. Peek then returns
// [ErrNotReady].
func (a *Access) Close() {
	a.mu.Lock()
	a.closed = true
	for _, desk := range a.desks {
		for _, e := range desk.entries {
			e.forget()
		}
	}
	a.mu.Unlock()
	a.cancel()
	a.flights.Wait()
}
