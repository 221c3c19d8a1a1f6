// Package access tells whether a service account may read the secrets of its namespace:
// the API server of its own cluster is asked (authorization.k8s.io/v1,
// SubjectAccessReview: may it list secrets there?), and the answer is kept for a while.
// [New] returns what asks; a caller that watches is told when an answer changes.
//
// A yes counts for 5 minutes, a no for 1, unless [Config] says otherwise. While somebody
// watches, a yes is asked again in its last fifth, so that an API server that is away for
// a moment costs nothing. An error never makes a yes last longer: once it has ended, an
// error is a no, for as long as one counts.
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

// What [Access.Peek] answers instead of a yes; wrapped errors count ([errors.Is]).
var (
	// ErrDenied: the API server said no, or could not be asked.
	ErrDenied = errors.New("it may not list the secrets of its namespace")
	// ErrNotReady: the API server is being asked; who watches is told.
	ErrNotReady = errors.New("the API server has not said yet whether it may list secrets")
	// ErrFull: so many service accounts of the cluster are watched that no more fit.
	ErrFull = fmt.Errorf("%w: too many service accounts of its cluster are here", ErrDenied)
)

const (
	defaultAllow    = 5 * time.Minute
	defaultDeny     = time.Minute
	defaultDeadline = 10 * time.Second
	defaultParallel = 16
	defaultMost     = 10000
)

// Subject is a service account of a cluster, as it was verified.
type Subject struct{ Cluster, Namespace, ServiceAccount string }

// Reviews is the API for SubjectAccessReviews of one cluster, as client-go has it. Create
// must end with its context.
type Reviews interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Config is what an [Access] is made of.
type Config struct {
	// Reviews returns the API of a cluster, false for one that is not connected. It must
	// not block; it is asked for each review. Our own account there may create
	// subjectaccessreviews (the role system:auth-delegator). Required.
	Reviews func(cluster string) (Reviews, bool)
	// Allow and Deny are how long a yes and a no count. Default: 5 minutes and 1, as
	// istiod has it.
	Allow, Deny time.Duration
	// Deadline is for one review. It waits twice as long at most until others are done.
	// Default: 10 s.
	Deadline time.Duration
	// Parallel is how many reviews of a cluster are on their way at once. Default: 16.
	Parallel int
	// Most is how many service accounts of a cluster are known at once: those that nobody
	// watches make room. Default: 10,000.
	Most int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log gets API servers that cannot be asked. Default: silent.
	Log *slog.Logger
}

// Counts are what an [Access] has done, since it was made.
type Counts struct {
	Allowed, Denied, Failed uint64 // answers and errors of API servers
	Known                   int    // service accounts, now
}

// Access knows who may read secrets. It is safe for concurrent use.
type Access struct {
	cfg     Config
	ctx     context.Context // of all reviews
	cancel  context.CancelFunc
	flights sync.WaitGroup

	mu     sync.Mutex
	desks  map[string]*desk // by cluster
	counts Counts
	closed bool
}

// New checks the settings; nothing is asked before the first Peek or Watch.
func New(cfg Config) (*Access, error) {
	if cfg.Reviews == nil {
		return nil, errors.New("access: Config.Reviews is required")
	}
	if cfg.Deadline < 0 || cfg.Parallel < 0 || cfg.Most < 0 {
		return nil, fmt.Errorf("access: Config has Deadline %s, Parallel %d and Most %d: none can be less than 0", cfg.Deadline, cfg.Parallel, cfg.Most)
	}
	cfg.setDefaults()
	if cfg.Allow < time.Second || cfg.Deny < time.Second {
		return nil, fmt.Errorf("access: Config has Allow %s and Deny %s: write 1s or more", cfg.Allow, cfg.Deny)
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

// Peek returns nil where s may list the secrets of its namespace. It never blocks: what
// is not known is asked for, and is [ErrNotReady] until then.
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

// connected tells whether there is somebody to be asked. Whose cluster has gone has
// nothing at once, whatever was said before.
func (a *Access) connected(s Subject) bool {
	if s.Cluster == "" || s.Namespace == "" || s.ServiceAccount == "" {
		return false
	}
	_, ok := a.cfg.Reviews(s.Cluster)
	return ok
}

// Watch has notify called when what Peek answers has changed, and when an answer is
// there that Peek had none for, until stop. notify must not block; a call that has begun
// may still run when stop returns. The error is [ErrFull].
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

// Forget drops what a cluster's API server has said, as when another one stands for it
// now. Who is watched is asked for anew.
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

// Counts returns what was done so far.
func (a *Access) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := a.counts
	for _, desk := range a.desks {
		counts.Known += len(desk.entries)
	}
	return counts
}

// Close ends the reviews and returns when all is quiet. Peek answers [ErrNotReady] from
// then on.
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
