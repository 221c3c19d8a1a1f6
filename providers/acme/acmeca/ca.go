package acmeca

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// maxOrders are driven at once; further ones wait.
	maxOrders = 64
	// orderTimeout is the default of [Settings.OrderTimeout].
	orderTimeout = 10 * time.Minute
	// lastSecond is how long before its deadline a call is answered that an order outlasts, so
	// that the caller reads why.
	lastSecond = time.Second
	// keepFailure is how long the error of an order waits for the call that asks for it.
	keepFailure = time.Minute
	// keepOverdue is how long a request is not pending, after its order was given up.
	keepOverdue = time.Hour
)

// CA is a [ca.Client], [ca.RootSource], [ca.RenewalAdvisor] and [io.Closer]. Orders run in
// goroutines of their own until Close. It keeps no connection between two requests and listens
// only while the CA is to verify a name. It is safe for concurrent use.
type CA struct {
	settings Settings
	server   *server
	account  *account
	answers  answerer
	state    *folder // account.pem
	orders   *folder
	issued   *folder
	log      *slog.Logger
	now      func() time.Time

	life context.Context //nolint:containedctx // of the orders, which outlast calls
	end  context.CancelFunc
	room chan struct{}

	mu      sync.Mutex
	running map[string]*job
	overdue map[string]time.Time // requests whose last order was given up for its time, and when
	wg      sync.WaitGroup
}

// job is an order that is being driven, or has failed a moment ago.
type job struct {
	done   chan struct{}
	placed atomic.Bool // the server has the order
	again  bool        // it follows one that was given up: an outage, not a matter of time
	reply  ca.Certificate
	err    error
	ended  time.Time
}

// Open checks the settings and makes the folder, without access to the network: the first
// request opens the account. An error has the reason [ca.Invalid].
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	if err := settings.checkRoots(); err != nil {
		return nil, err
	}
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	c := &CA{settings: settings, log: settings.Log, now: time.Now, room: make(chan struct{}, maxOrders), running: map[string]*job{}, overdue: map[string]time.Time{}}
	if err := c.openFolders(); err != nil {
		return nil, ca.Errorf(ca.Invalid, "state_dir: %w", errors.Join(err, c.closeFolders()))
	}
	c.server = newServer(settings)
	c.account = newAccount(settings, c.server, c.state, c.log)
	c.answers = newAnswerer(settings, c.log)
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

func newServer(settings Settings) *server {
	transport := &rest.Transport{NewTLS: settings.Config, Timeout: callTimeout, MaxReply: maxReply}
	return &server{url: &settings.URL.URL, client: transport, now: time.Now}
}

func (c *CA) openFolders() (err error) {
	for path, one := range map[string]**folder{"": &c.state, "orders": &c.orders, "issued": &c.issued} {
		if *one, err = openFolder(filepath.Join(c.settings.StateDir, path)); err != nil {
			return err
		}
	}
	return nil
}

func (c *CA) closeFolders() (err error) {
	for _, one := range []*folder{c.state, c.orders, c.issued} {
		if one != nil {
			err = errors.Join(err, one.close())
		}
	}
	return err
}

// Close ends the orders, which a later CA with the same folder goes on with.
func (c *CA) Close() error {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.wg.Wait()
	return c.closeFolders()
}

// CSRSign implements [ca.Client]. The order outlasts the call: a repeat of the request goes on
// with it, also in a later process. The reply has the roots of [Settings.Roots].
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	asks, err := c.settings.asks(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	called := recordName(req.ID, asks.csr)
	one, err := c.join(called, asks)
	if err != nil {
		return ca.Certificate{}, err
	}
	waits, cancel := c.patience(ctx)
	defer cancel()
	select {
	case <-one.done:
		c.collected(called, one)
		return one.reply, one.err
	case <-waits.Done():
	}
	if err := ctx.Err(); err != nil {
		return ca.Certificate{}, ca.Errorf(ca.ReasonFor(err), "the call has ended; the order goes on")
	}
	if !one.placed.Load() {
		return ca.Certificate{}, ca.Errorf(ca.Unavailable, "the CA has no order yet; retry to resume it")
	}
	if one.again {
		return ca.Certificate{}, ca.Errorf(ca.Unavailable, "order still in progress, after one that the CA did not finish; retry to resume it")
	}
	return ca.Certificate{}, &ca.Error{Reason: ca.Pending, RetryAfter: time.Second, Message: "order still in progress; retry to resume it"}
}

// patience returns a context that ends a little before ctx, if that has the time.
func (c *CA) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) < 4*lastSecond {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-lastSecond))
}

// join returns the job of a request, and starts it if there is none.
func (c *CA) join(called string, asks asked) (*job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, ca.Errorf(ca.Unavailable, "the provider is being closed")
	}
	for other, old := range c.running {
		if !old.ended.IsZero() && c.now().Sub(old.ended) > keepFailure {
			delete(c.running, other)
		}
	}
	maps.DeleteFunc(c.overdue, func(_ string, since time.Time) bool { return c.now().Sub(since) > keepOverdue })
	one := c.running[called]
	if one == nil {
		_, again := c.overdue[called]
		one = &job{done: make(chan struct{}), again: again}
		c.running[called] = one
		c.wg.Go(func() { c.run(called, one, asks) })
	}
	return one, nil
}

// collected forgets a job whose result has been returned.
func (c *CA) collected(called string, one *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[called] == one {
		delete(c.running, called)
	}
}

func (c *CA) run(called string, one *job, asks asked) {
	ctx, cancel := context.WithTimeout(c.life, cmp.Or(c.settings.OrderTimeout, orderTimeout))
	defer cancel()
	reply, err := c.fulfil(ctx, called, one, asks)
	late := false
	switch {
	case err != nil && c.life.Err() != nil:
		err = ca.Errorf(ca.Unavailable, "the provider is being closed; the order goes on in the next one")
	case err != nil && ctx.Err() != nil:
		c.orders.drop(called)
		late = true
		err = ca.Errorf(ca.Unavailable, "the order is not done after %s and was given up: %w", cmp.Or(c.settings.OrderTimeout, orderTimeout), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one.reply, one.err, one.ended = reply, err, c.now()
	if late {
		c.overdue[called] = one.ended
	}
	if err == nil {
		delete(c.running, called) // the record answers a repeat
		delete(c.overdue, called)
	}
	close(one.done)
}

// fulfil gets the certificate that a request asks for.
func (c *CA) fulfil(ctx context.Context, called string, one *job, asks asked) (ca.Certificate, error) {
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return ca.Certificate{}, ca.Errorf(ca.Unavailable, "waiting for %d other orders: %w", maxOrders, ctx.Err())
	}
	unlock, err := c.orders.lock(ctx, called)
	if err != nil {
		return ca.Certificate{}, err
	}
	defer unlock()
	kept, err := load[record](c.orders, called)
	if err != nil {
		return ca.Certificate{}, err
	}
	if kept.Chain == "" {
		o := &order{ca: c, called: called, job: one, asked: asks, kept: kept}
		if kept.Chain, err = o.chain(ctx); err != nil {
			return ca.Certificate{}, err
		}
	}
	return c.reply(kept.Chain)
}
