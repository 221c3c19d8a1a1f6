package signing

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/ra"
)

// pauses bounds the pauses between certificates that are asked for while statuses cannot be written, though
// their dry runs succeed.
var pauses = rotation.Row{First: 10 * time.Second, Most: 10 * time.Minute}

// mostFailed is how many owners' writes must fail in a row for the writes of others to be in doubt. One
// owner may be at fault itself, for example with requests that exceed etcd's limit once they have a chain.
const mostFailed = 3

// againDry is the longest wait of an owner after a failed dry run, before it is spread.
const againDry = 40 * time.Second

// mostRemembered is how many owners the gate may remember before it forgets those that did not come back.
const mostRemembered = 1000

// ErrShut means that a [Gate] is shut. It is wrapped in a [*PendingError].
var ErrShut = errors.New("status updates of these requests fail: no certificate is requested until one succeeds")

// Gate keeps a signer's requests from costing certificates that could not be delivered: those of an
// account without the right to sign, or of an API server that takes no writes. Each request has
// an owner, which is not empty: its namespace, or who made it.
//
// It is shut for an owner, and never for others, when writes of two of its requests have failed. Only a write
// of its own that succeeds opens it then: an API server that takes those of others may still refuse its. Now
// and then the owner may try again, ever more seldom: if its dry run succeeds, that costs a certificate.
//
// Once writes of three owners have failed, and none succeeded between, the writes of all are in doubt, until
// one succeeds: the gate has the API server try the write of each request (a dry run, which costs no
// certificate), and is shut for the owner if that fails. Any write that succeeds opens it for owners with no
// failed write. So a fault of the API server costs few certificates, and owners whose writes fail stop no
// others.
// It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	faulty  map[string]faulty   // by owner, until one of its writes succeeds
	row     map[string]struct{} // owners whose writes failed since any succeeded, three at most
	waiting map[*waiter]struct{}

	fault     string // of the last write that failed
	forbidden bool
	general   bool // the last dry run of an owner whose own writes had not failed was refused
}

// faulty is an owner whose writes or dry runs fail.
type faulty struct {
	first types.UID // the first request whose write failed; none if only dry runs did
	since time.Time // since when the gate is shut for it; zero if it is not
	next  time.Time // when it may try, by the monotonic clock
	waits rotation.Waits
}

func (f faulty) shut() bool { return !f.since.IsZero() }

// left reports whether the owner has not come back though it may try: it has no requests any more.
func (f faulty) left(now time.Time) bool { return now.Sub(f.next) > pauses.Most }

// after returns the state after a trial at now.
func (f faulty) after(now time.Time) faulty {
	f.next = now.Add(f.waits.Next(pauses))
	return f
}

// DryRun has the API server try the write of a request's certificate, as far as it can without one.
type DryRun func(context.Context) error

// waiter is a call of Issue.
type waiter struct {
	owner    string
	ctx      context.Context // ends with the call, and when the gate is shut for the owner
	cancel   context.CancelFunc
	dryRun   DryRun
	doubtful bool // it has to pass its dry run first; only its own goroutine changes it
}

// NewGate returns an open Gate.
func NewGate() *Gate {
	return &Gate{faulty: map[string]faulty{}, row: map[string]struct{}{}, waiting: map[*waiter]struct{}{}}
}

// Check returns [ErrShut] if Issue would return it at once. It uses up no trial.
func (g *Gate) Check(owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.faulty[owner].next) {
		return shut()
	}
	return nil
}

// shut is quiet, as the failed write is logged.
func shut() error { return &PendingError{Again: Spread(RetryCall), Err: ErrShut, Quiet: true} }

// Issue has issuer issue a certificate for an order of the owner, unless it could not be delivered:
// it returns [ErrShut] if the gate is shut, or is shut meanwhile. It may call dryRun.
func (g *Gate) Issue(ctx context.Context, issuer ra.Issuer, owner string, o *ra.Order, dryRun DryRun) (cert ra.Certificate, err error) {
	w, ok := g.enter(ctx, owner, dryRun)
	if !ok {
		return cert, shut()
	}
	defer g.leave(w)
	if w.doubtful {
		g.try(w)
	}
	if err = w.ctx.Err(); err == nil {
		cert, err = issuer.Issue(w.ctx, o)
	}
	if err != nil && w.ctx.Err() != nil {
		err = shut()
	}
	return cert, err
}

// enter returns a waiter that may ask for a certificate, or false if the gate is shut now.
func (g *Gate) enter(ctx context.Context, owner string, dryRun DryRun) (w *waiter, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.faulty[owner]
	if f.shut() {
		now := time.Now()
		if now.Before(f.next) {
			return nil, false
		}
		g.faulty[owner] = f.after(now)
	}
	w = &waiter{owner: owner, dryRun: dryRun, doubtful: f.shut() || g.doubtful()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	g.waiting[w] = struct{}{}
	return w, true
}

func (g *Gate) leave(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, w)
	w.cancel()
}

// doubtful reports whether any owner's writes may fail. The lock is held.
func (g *Gate) doubtful() bool { return len(g.row) >= mostFailed }

// try makes the dry run of a waiter, and shuts the gate for its owner if that fails.
func (g *Gate) try(w *waiter) {
	err := w.dryRun(w.ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.faulty[w.owner].first != ""
	switch {
	case w.ctx.Err() != nil:
	case err == nil || saysNothing(err):
		g.general = g.general && own
		if w.doubtful {
			w.doubtful = false
		}
	default:
		g.general = g.general || !own
		g.note(err)
		g.close(w.owner)
		g.soon(w.owner)
		w.cancel() // a trial
	}
}

// soon has an owner whose dry run failed try again after a minute at most: that costs nothing. The lock is
// held.
func (g *Gate) soon(owner string) {
	f := g.faulty[owner]
	if next := time.Now().Add(Spread(againDry)); next.Before(f.next) {
		f.next = next
	}
	g.faulty[owner] = f
}

// saysNothing reports whether an error of a write does not show that others fail: anyone who may change a
// request's metadata can cause a conflict.
func saysNothing(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(Gone(err), ErrOver)
}

// Wrote takes the outcome of writing a request's certificate.
func (g *Gate) Wrote(owner string, request types.UID, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		maps.DeleteFunc(g.faulty, func(other string, f faulty) bool { return other == owner || f.first == "" })
		clear(g.row)
		g.general = false
	case !saysNothing(err):
		g.note(err)
		g.failed(owner, request)
	}
}

// failed counts a write that failed. The lock is held.
func (g *Gate) failed(owner string, request types.UID) {
	f := g.faulty[owner]
	second := f.first != "" && f.first != request
	if f.first == "" {
		f.first = request
		g.remember(owner, f)
	}
	if !g.doubtful() {
		if g.row[owner] = struct{}{}; g.doubtful() {
			g.doubt()
		}
	}
	if second || g.doubtful() {
		g.close(owner)
	}
}

// doubt has one waiter of each owner make its dry run. The lock is held.
func (g *Gate) doubt() {
	asked := map[string]bool{}
	for w := range g.waiting {
		if !asked[w.owner] && !w.doubtful {
			asked[w.owner] = true
			go g.try(w) // it ends with w's context
		}
	}
}

// close shuts the gate for an owner. Those who wait keep their places by their first ask. The lock is
// held.
func (g *Gate) close(owner string) {
	f := g.faulty[owner]
	if f.shut() {
		return
	}
	f.since = time.Now()
	g.remember(owner, f.after(f.since))
	for w := range g.waiting {
		if w.owner == owner {
			w.cancel()
		}
	}
}

// remember keeps the state of an owner, and makes room for it. The lock is held.
func (g *Gate) remember(owner string, f faulty) {
	if _, known := g.faulty[owner]; !known && len(g.faulty) >= mostRemembered {
		now := time.Now()
		maps.DeleteFunc(g.faulty, func(_ string, f faulty) bool { return f.left(now) })
	}
	g.faulty[owner] = f
}
