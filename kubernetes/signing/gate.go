package signing

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/ra"
)

// pauses bounds the pauses between certificates that are asked for while statuses cannot be written.
// A trial's certificate is written again for almost 5 minutes, so that the end of a long fault is
// noticed soon, too.
var pauses = rotation.Row{First: 10 * time.Second, Most: 10 * time.Minute}

const (
	// mostFailed is how many owners' writes must fail in a row for all to wait. One owner may be at
	// fault itself, for example with requests that exceed etcd's limit once they have a chain.
	mostFailed = 3
	everyone   = "" // not a valid owner
)

// ErrShut means that a [Gate] is shut. It is wrapped in a [*PendingError].
var ErrShut = errors.New("status updates of this signer's requests fail: no certificate is requested until one succeeds")

// Gate keeps a signer's requests from costing certificates that could not be delivered: those of an
// account without the right to sign, or of an API server that takes no writes. Each request has
// an owner, which is not empty: its namespace, or who made it.
//
// With no write that succeeded between, it is shut for an owner when writes of two of its
// requests have failed, and for everyone when those of three owners have, so that no single
// request and no single owner stops others. One that succeeds opens it. Now and then one may try,
// ever more seldom: each costs a certificate. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	failed  map[string]types.UID // by owner: the first request whose write failed
	shut    map[string]trial     // by owner, or everyone
	waiting map[context.Context]waiter

	fault     string // of the last write that failed
	forbidden bool
}

// trial is when one may try, by the monotonic clock, and since when the gate is shut.
type trial struct {
	next  time.Time
	waits rotation.Waits
	since time.Time
}

// after returns the trial that follows one at now.
func (t trial) after(now time.Time) trial {
	t.next = now.Add(t.waits.Next(pauses))
	return t
}

type waiter struct {
	owner  string
	cancel context.CancelFunc
}

// NewGate returns an open Gate.
func NewGate() *Gate {
	return &Gate{failed: map[string]types.UID{}, shut: map[string]trial{}, waiting: map[context.Context]waiter{}}
}

// Check returns [ErrShut] if Issue would return it at once. It uses up no trial.
func (g *Gate) Check(owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.shut[g.whose(owner)].next) {
		return shut()
	}
	return nil
}

// shut is quiet, as the failed write is logged.
func shut() error { return &PendingError{Again: Spread(RetryCall), Err: ErrShut, Quiet: true} }

// whose returns what decides for an owner. The lock is held.
func (g *Gate) whose(owner string) string {
	if _, all := g.shut[everyone]; all {
		return everyone
	}
	return owner
}

// Issue has issuer issue a certificate for an order of the owner, unless it could not be delivered:
// it returns [ErrShut] if the gate is shut, or is shut meanwhile.
func (g *Gate) Issue(ctx context.Context, issuer ra.Issuer, owner string, o *ra.Order) (ra.Certificate, error) {
	inside, leave, ok := g.enter(ctx, owner)
	if !ok {
		return ra.Certificate{}, shut()
	}
	defer leave()
	cert, err := issuer.Issue(inside, o)
	if err != nil && inside.Err() != nil {
		err = shut()
	}
	return cert, err
}

// enter returns a context to ask for a certificate with, which ends with ctx, with leave, and when
// the gate is shut; or false if it is shut now.
func (g *Gate) enter(ctx context.Context, owner string) (inside context.Context, leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	whose := g.whose(owner)
	if t, shut := g.shut[whose]; shut {
		now := time.Now()
		if now.Before(t.next) {
			return nil, nil, false
		}
		g.shut[whose] = t.after(now)
	}
	inside, cancel := context.WithCancel(ctx)
	g.waiting[inside] = waiter{owner, cancel}
	return inside, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, inside)
		cancel()
	}, true
}

// Wrote takes the outcome of writing a request's certificate. A conflict does not count, as anyone
// who may change a request's metadata can cause one.
func (g *Gate) Wrote(owner string, request types.UID, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		clear(g.failed)
		clear(g.shut)
		return
	}
	if apierrors.IsConflict(err) {
		return
	}
	g.note(err)
	first, failed := g.failed[owner]
	switch {
	case !failed:
		g.failed[owner] = request
	case first != request:
		g.close(owner)
	}
	if len(g.failed) >= mostFailed {
		g.close(everyone)
	}
}

// close shuts the gate for an owner, or for everyone. Those who wait keep their places by their
// first ask. The lock is held.
func (g *Gate) close(whose string) {
	if _, shut := g.shut[whose]; shut {
		return
	}
	now := time.Now()
	g.shut[whose] = trial{since: now}.after(now)
	for _, w := range g.waiting {
		if whose == everyone || whose == w.owner {
			w.cancel()
		}
	}
}
