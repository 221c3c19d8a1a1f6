// Package access reports whether a service account may read the secrets of its namespace: it asks
// the API server of the account's cluster (authorization.k8s.io/v1, SubjectAccessReview for list
// secrets) and caches the answer. countersign-discovery creates an [Access] with [New]; each review
// runs in its own goroutine, and watchers are notified when an answer changes.
//
// There are three answers. Unless [Config] says otherwise, a yes is valid for 5 minutes and a no for
// 1; while it is watched, a yes is refreshed in its last fifth, so that a brief API server outage has
// no effect. An API server that does not answer, or does not let us ask, cannot tell: that gives
// nothing to anybody new and takes nothing from those who hold a secret ([Access.Hold]), for at
// most an hour after the last yes.
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
	// ErrDenied means that the API server said no, that it could not tell for too long, or
	// that the cluster was removed.
	ErrDenied = errors.New("not allowed to list the secrets of its namespace")
	// ErrNotReady means that the API server has not answered yet, or cannot tell;
	// watchers will be notified.
	ErrNotReady = errors.New("access review in progress")
	// ErrFull means that too many service accounts of the cluster are watched; watchers
	// will be notified when there is room.
	ErrFull = fmt.Errorf("%w: too many service accounts of its cluster are connected", ErrNotReady)
)

const (
	defaultAllow    = 5 * time.Minute
	defaultDeny     = time.Minute
	defaultOutage   = time.Hour
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
	// Reviews returns the API of a cluster, nil if the cluster is not connected now, or
	// false if there is no such cluster: its accounts have no rights. It is called for
	// each review and must not block. Our account there needs permission to create
	// subjectaccessreviews (the role system:auth-delegator). Required.
	Reviews func(cluster string) (Reviews, bool)
	// Allow and Deny are how long a yes and a no are valid. Default: 5 minutes and 1
	// minute, as in istiod.
	Allow, Deny time.Duration
	// Outage is how long after the last yes an API server that cannot tell takes nothing
	// from those who hold a secret. Then it counts as a no, so that a right can end while
	// the API server is away. Default: 1 hour; negative: it ends with the yes.
	Outage time.Duration
	// Deadline limits one review, once it is its turn. Default: 10 s.
	Deadline time.Duration
	// Parallel is how many reviews of a cluster run at once. Default: 16.
	Parallel int
	// Most is how many service accounts of a cluster are known at once; unwatched ones
	// are evicted. Default: 10,000.
	Most int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log receives failures to reach API servers. Default: [slog.Default].
	Log *slog.Logger
}

// Counts are statistics of an [Access] since its creation.
type Counts struct {
	Allowed, Denied, Failed uint64 // results of reviews
	Known                   int    // service accounts known now
	Unsure                  int    // those of them of which the API server cannot tell
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
	c.Outage, c.Deadline = cmp.Or(c.Outage, defaultOutage), cmp.Or(c.Deadline, defaultDeadline)
	c.Parallel, c.Most = cmp.Or(c.Parallel, defaultParallel), cmp.Or(c.Most, defaultMost)
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// Peek returns nil if s may list the secrets of its namespace, or if that cannot be told and s
// holds the named secret. It never blocks: an unknown answer starts a review and is
// [ErrNotReady] until it ends.
func (a *Access) Peek(s Subject, name string) error {
	if !a.exists(s) {
		return ErrDenied
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entry(s)
	if e == nil {
		return ErrFull
	}
	now := a.cfg.Now()
	if !e.counts(now) && e.due(&a.cfg, now) {
		a.ask(e)
	}
	err := e.said(&a.cfg, name, now)
	e.waited = e.waited || errors.Is(err, ErrNotReady)
	return err
}

// exists reports whether the subject's cluster exists. Without its cluster a subject has no
// rights, whatever was answered before.
func (a *Access) exists(s Subject) bool {
	if s.Cluster == "" || s.Namespace == "" || s.ServiceAccount == "" {
		return false
	}
	_, ok := a.cfg.Reviews(s.Cluster)
	return ok
}

// Hold records that s was served the named secret while it had a yes: it keeps the secret, and
// gets new versions of it, while its API server cannot tell.
func (a *Access) Hold(s Subject, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.desks[s.Cluster]
	if d == nil || d.entries[s] == nil {
		return
	}
	if e := d.entries[s]; e.answer == allowed && e.counts(a.cfg.Now()) {
		d.hold(e, name, maxNames*a.cfg.Most)
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
		desk.forget(e)
		if len(e.watches) == 0 {
			delete(desk.entries, e.subject)
			continue
		}
		a.ask(e)
	}
	a.admit(desk)
	if len(desk.entries) == 0 {
		delete(a.desks, cluster)
	}
}

// Counts returns the current statistics.
func (a *Access) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts, now := a.counts, a.cfg.Now()
	for _, desk := range a.desks {
		counts.Known += len(desk.entries)
		for _, e := range desk.entries {
			if e.verdict(&a.cfg, now) == unsure {
				counts.Unsure++
			}
		}
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
			desk.forget(e)
		}
	}
	a.mu.Unlock()
	a.cancel()
	a.flights.Wait()
}
