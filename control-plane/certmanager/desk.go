package certmanager

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ra"
)

const (
	// mostOrders and mostOfOne bound the requests that are asked for at the same time, of all
	// namespaces and of one.
	mostOrders, mostOfOne = 2000, 500
	// hold is how long a worker waits for a certificate, while there are fewer than busy. Most come
	// within that time, and a request that is done at once costs two writes less.
	hold = 2 * time.Second
	busy = 16
	// lookAgain bounds how late a request can be whose notice was lost.
	lookAgain = time.Minute
)

// errAtWork is no error: the request comes back when there is an answer.
var errAtWork = errors.New("the request is with the authority, or waits for its turn")

// desk has certificates asked for in the background, so that no worker waits for a turn that may be
// hours away, and keeps each until the API server shows that it has it: a cache may be late, and
// the same request is then looked at again.
type desk struct {
	ctx   context.Context
	issue func(context.Context, ra.Request) (ra.Certificate, error)
	done  func(context.Context, types.NamespacedName) // hears of each answer
	now   func() time.Time
	tasks sync.WaitGroup

	mu     sync.Mutex
	orders map[types.UID]*order
	of     map[string]int // by namespace; none is 0
}

// order is a request that is asked for, or the answer to it.
type order struct {
	name types.NamespacedName
	req  ra.Request
	end  context.CancelFunc
	over chan struct{} // closed once there is an answer
	cert ra.Certificate
	err  error
}

func newDesk(ctx context.Context, d *Door, done func(context.Context, types.NamespacedName)) *desk {
	return &desk{ctx: ctx, issue: d.cfg.Issuer.Issue, done: done, now: d.cfg.Now, orders: map[types.UID]*order{}, of: map[string]int{}}
}

// ask returns the certificate for a request, an error, or errAtWork.
func (k *desk) ask(ctx context.Context, name types.NamespacedName, req ra.Request) (ra.Certificate, error) {
	o, err := k.order(name, req)
	if err != nil {
		return ra.Certificate{}, err
	}
	k.wait(ctx, o)
	return k.collect(o)
}

// order returns that of a request, which begins with it.
func (k *desk) order(name types.NamespacedName, req ra.Request) (*order, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	uid := types.UID(req.Object)
	if o := k.orders[uid]; o != nil && bytes.Equal(o.req.CSR, req.CSR) && o.req.Door == req.Door {
		return o, nil
	}
	k.forget(uid)
	if len(k.orders) >= mostOrders || k.of[name.Namespace] >= mostOfOne {
		return nil, &ca.Error{Reason: ca.RateLimited, Message: "too many requests of the namespace, or of all, are being asked for already", RetryAfter: 10 * time.Second}
	}
	ctx, end := context.WithCancel(k.ctx)
	o := &order{name: name, req: req, end: end, over: make(chan struct{})}
	k.orders[uid] = o
	k.of[name.Namespace]++
	k.tasks.Go(func() { k.work(ctx, o) })
	return o, nil
}

func (k *desk) work(ctx context.Context, o *order) {
	defer o.end()
	o.cert, o.err = k.issue(ctx, o.req)
	close(o.over)
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
	select {
	case <-o.over:
	default:
		return ra.Certificate{}, errAtWork
	}
	if o.err == nil && k.now().Before(o.cert.NotAfter) {
		return o.cert, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if uid := types.UID(o.req.Object); k.orders[uid] == o {
		k.forget(uid)
	}
	if o.err == nil {
		return ra.Certificate{}, ca.Errorf(ca.Unavailable, "the certificate has expired before it could be delivered")
	}
	return ra.Certificate{}, o.err
}

// drop forgets a request that is gone or finished. If it waits, it loses its place.
func (k *desk) drop(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(uid)
}

// forget does so with the lock held.
func (k *desk) forget(uid types.UID) {
	o := k.orders[uid]
	if o == nil {
		return
	}
	o.end()
	delete(k.orders, uid)
	if k.of[o.name.Namespace]--; k.of[o.name.Namespace] == 0 {
		delete(k.of, o.name.Namespace)
	}
}
