package certmanager

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// mostOrders bounds the requests that are asked for at the same time. It is more than an
	// authority's queue has places by default, so that the engine decides whose turn it is.
	mostOrders = 20000
	// hold is how long a worker waits for a certificate, while there are fewer than busy. Most come
	// within that time, and a request that is done at once costs two writes less.
	hold = 2 * time.Second
	busy = 16
	// lookAgain bounds how late a request can be whose notice was lost.
	lookAgain = time.Minute
)

// errAtWork is no error: the request comes back when there is an answer.
var errAtWork = errors.New("the request is with the authority, or waits for its turn")

// desk issues certificates in the background, so that no worker waits for a turn that may be hours
// away, and keeps each until the API server shows it: a stale cache brings the same request again.
// When the queue is full, a namespace with fewer requests of an authority displaces one of the
// namespace with the most.
type desk struct {
	ctx   context.Context
	room  int
	issue func(context.Context, *ra.Order) (ra.Certificate, error)
	done  func(context.Context, types.NamespacedName) // called for each answer
	now   func() time.Time
	tasks sync.WaitGroup

	mu     sync.Mutex
	orders map[types.UID]*order
	of     map[tenant]int          // none is 0
	first  map[types.UID]time.Time // when an authority first denied what is still open; monotonic
}

// tenant is who shares in the room.
type tenant struct{ namespace, door string }

// order is a request that is asked for, or the answer to it.
type order struct {
	name  types.NamespacedName
	asked *ra.Order
	end   context.CancelFunc
	over  chan struct{} // closed once there is an answer
	cert  ra.Certificate
	err   error
	given bool // the certificate was collected; the desk's lock guards it
}

func (o *order) tenant() tenant { return tenant{o.name.Namespace, o.asked.Door} }

func (o *order) isOver() bool {
	select {
	case <-o.over:
		return true
	default:
		return false
	}
}

func newDesk(ctx context.Context, d *Door, done func(context.Context, types.NamespacedName)) *desk {
	return &desk{ctx: ctx, room: mostOrders, issue: d.cfg.Issuer.Issue, done: done, now: d.cfg.Now, orders: map[types.UID]*order{}, of: map[tenant]int{}, first: map[types.UID]time.Time{}}
}

// ask returns the certificate for a request, an error, or errAtWork.
func (k *desk) ask(ctx context.Context, name types.NamespacedName, asked *ra.Order) (ra.Certificate, error) {
	o, err := k.order(name, asked)
	if err != nil {
		return ra.Certificate{}, err
	}
	k.wait(ctx, o)
	return k.collect(o)
}

// order returns that of a request, which begins with it.
func (k *desk) order(name types.NamespacedName, asked *ra.Order) (*order, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	uid := types.UID(asked.Object)
	if o := k.orders[uid]; o != nil && bytes.Equal(o.asked.CSR, asked.CSR) && o.asked.Door == asked.Door {
		return o, nil
	}
	if old := k.forget(uid); old != nil {
		k.tasks.Go(func() { old.asked.Withhold(k.ctx, old.cert, errChanged) })
	}
	o := &order{name: name, asked: asked, over: make(chan struct{})}
	if len(k.orders) >= k.room && !k.crowdOut(o.tenant()) {
		return nil, &ca.Error{Reason: ca.RateLimited, Message: "too many requests of the namespace, or of all, are being asked for already", RetryAfter: 10 * time.Second}
	}
	ctx, end := context.WithCancel(k.ctx)
	o.end = end
	k.orders[uid] = o
	k.of[o.tenant()]++
	k.tasks.Go(func() { k.work(ctx, o) })
	return o, nil
}

// crowdOut makes room for a tenant: the one with most loses the newest order that waits. The request
// comes back after lookAgain. The lock is held.
func (k *desk) crowdOut(by tenant) bool {
	most := by
	for other, n := range k.of {
		if n > k.of[most] {
			most = other
		}
	}
	if k.of[most] <= k.of[by]+1 {
		return false // they would take it from each other in turns
	}
	var newest *order
	for _, o := range k.orders {
		if o.tenant() == most && !o.isOver() && (newest == nil || o.asked.Asked.After(newest.asked.Asked)) {
			newest = o
		}
	}
	if newest == nil {
		return false
	}
	k.forget(types.UID(newest.asked.Object))
	return true
}

func (k *desk) work(ctx context.Context, o *order) {
	defer o.end()
	cert, err := k.issue(ctx, o.asked)
	k.mu.Lock()
	o.cert, o.err = cert, err
	close(o.over)
	dropped := k.orders[types.UID(o.asked.Object)] != o
	k.mu.Unlock()
	if dropped && err == nil { // as it came
		o.asked.Withhold(ctx, cert, errGone)
	}
	k.done(ctx, o.name)
}

// wait returns when there is an answer, or it had better be fetched later.
func (k *desk) wait(ctx context.Context, o *order) {
	k.mu.Lock()
	many := len(k.orders) >= busy
	k.mu.Unlock()
	if many {
		return
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-o.over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// collect returns the answer. A certificate stays, an error does not.
func (k *desk) collect(o *order) (ra.Certificate, error) {
	if !o.isOver() {
		return ra.Certificate{}, errAtWork
	}
	if o.err == nil && k.now().Before(o.cert.NotAfter) {
		k.mu.Lock()
		defer k.mu.Unlock()
		o.given = true
		return o.cert, nil
	}
	k.remove(o)
	if o.err == nil {
		err := ca.Errorf(ca.Unavailable, "the certificate has expired before it could be delivered")
		o.asked.Withhold(k.ctx, o.cert, err)
		return ra.Certificate{}, err
	}
	return ra.Certificate{}, o.err
}

// remove forgets an order, unless its request has another by now.
func (k *desk) remove(o *order) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if uid := types.UID(o.asked.Object); k.orders[uid] == o {
		k.forget(uid)
	}
}

// Why a certificate is withheld.
var (
	errGone    = errors.New("the request was deleted or failed before its certificate was written")
	errChanged = errors.New("the request has changed since its certificate was asked for")
	errOver    = errors.New("the work on requests ended before the certificate was written")
)

// drop forgets a request that has a certificate, has failed, or is gone. If it waits, it loses its place.
func (k *desk) drop(uid types.UID, issued bool) {
	k.mu.Lock()
	o := k.forget(uid)
	delete(k.first, uid)
	lost := o != nil && !(issued && o.given)
	k.mu.Unlock()
	if lost {
		o.asked.Withhold(k.ctx, o.cert, errGone)
	}
}

// close returns when all is quiet. The desk's context has ended. What was collected may be written.
func (k *desk) close() {
	k.tasks.Wait()
	k.mu.Lock()
	for _, o := range k.orders {
		if o.isOver() && o.err == nil && !o.given {
			k.tasks.Go(func() { o.asked.Withhold(k.ctx, o.cert, errOver) }) // at once: the audit log writes them together
		}
	}
	k.mu.Unlock()
	k.tasks.Wait()
}

// denied returns for how long an authority has denied a request, as of now. Where too many are, it is
// as if this were the first time, so that it stays pending.
func (k *desk) denied(uid types.UID) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since, known := k.first[uid]; known {
		return time.Since(since)
	}
	if len(k.first) < k.room {
		k.first[uid] = time.Now()
	}
	return 0
}

// forget drops an order, and returns it if it has a certificate. The lock is held.
func (k *desk) forget(uid types.UID) *order {
	o := k.orders[uid]
	if o == nil {
		return nil
	}
	o.end()
	delete(k.orders, uid)
	if k.of[o.tenant()]--; k.of[o.tenant()] == 0 {
		delete(k.of, o.tenant())
	}
	if o.isOver() && o.err == nil {
		return o
	}
	return nil
}
