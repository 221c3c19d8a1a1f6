package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// The wait after a failure doubles from the one to the other, and is drawn between its
	// half and its whole.
	minWait, maxWait = 500 * time.Millisecond, 30 * time.Second
	// lasting is how long a stream must have been up for its end to be no failure in a row.
	lasting = time.Minute
)

// Client gets the secrets of a gateway and holds them. It is an [xds.Source]. Its methods
// may be called by any number of goroutines at once. Make one with [New].
type Client struct {
	cfg Config
	*shelf
	// changed gets a word when the own certificate is another.
	changed chan struct{}

	mu     sync.Mutex
	status Status
}

// New returns a client. It starts nothing; see [Client.Run]. What is required and missing
// is an error.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, shelf: newShelf(cfg), changed: make(chan struct{}, 1)}, nil
}

// Run speaks with the service until ctx ends, whenever there is a name that is watched. It
// is called once. What is held stays when it returns.
func (c *Client) Run(ctx context.Context) {
	if stop, err := c.cfg.Secrets.Watch(secret.Caller{}, c.cfg.Certificate, c.renewed); err == nil {
		defer stop()
	}
	for failures := 0; c.idle(ctx); {
		began := time.Now()
		err := c.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) >= lasting {
			failures = 0
		}
		if err == nil {
			c.down(nil, 0)
			continue
		}
		wait := backoff(failures)
		failures++
		c.down(err, wait)
		c.pause(ctx, wait)
	}
	c.down(nil, 0)
}

// renewed is told of another certificate: who waits because there was none need not.
func (c *Client) renewed(string) {
	select {
	case c.changed <- struct{}{}:
	default: // a word waits already
	}
}

// idle waits until there is a name, and tells whether there is one.
func (c *Client) idle(ctx context.Context) bool {
	for len(c.names()) == 0 {
		select {
		case <-c.wanted:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func backoff(failures int) time.Duration {
	wait := min(minWait<<min(failures, 10), maxWait)
	return wait/2 + rand.N(wait/2) //nolint:gosec // jitter
}

// pause waits after a failure; another certificate ends it.
func (c *Client) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.changed:
	case <-ctx.Done():
	}
}

// up notes that the service has answered.
func (c *Client) up(with *credential) {
	c.mu.Lock()
	c.status = Status{Connected: true, Since: time.Now(), Credential: with.kind}
	c.mu.Unlock()
	c.cfg.Observe(Connected)
	c.cfg.Log.Info("connected to discovery service", "address", c.cfg.Address, "with", with.kind)
}

// down notes that there is no stream; err is nil where it was ended on purpose.
func (c *Client) down(err error, wait time.Duration) {
	c.mu.Lock()
	if was := c.status.Connected; was || err != nil && c.status.Since.IsZero() {
		c.status.Connected, c.status.Since = false, time.Now()
	}
	if err != nil {
		c.status.Failure = secret.NewFailure(err, time.Now(), wait)
	}
	c.mu.Unlock()
	if err != nil {
		c.cfg.Observe(Failed)
		c.cfg.Log.Warn("discovery service unavailable, serving held secrets", "address", c.cfg.Address, "error", err, "next_try_in", wait)
	}
}

// explain makes an error of package ca of what a stream ended with: foreign text is
// bounded, and the token that was sent is not in it.
func (c *Client) explain(err error, with *credential) error {
	if _, ok := errors.AsType[*ca.Error](err); ok {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return ca.Errorf(ca.Unavailable, "%s", text.Redact(err.Error(), with.token))
	}
	reason, known := reasons[s.Code()]
	if !known {
		reason = ca.Unavailable
	}
	if reason == ca.Unauthenticated && with.token != "" && c.cfg.TokenRejected != nil {
		c.cfg.TokenRejected(with.token)
	}
	text := text.Redact(s.Message(), with.token)
	if reason == ca.Unimplemented {
		text = "it has no incremental ADS (DeltaAggregatedResources), which istiod and countersign-discovery have: " + text
	}
	return ca.Errorf(reason, "%s", text)
}

var reasons = map[codes.Code]ca.Reason{
	codes.Unauthenticated: ca.Unauthenticated, codes.PermissionDenied: ca.Denied, codes.ResourceExhausted: ca.RateLimited,
	codes.InvalidArgument: ca.Invalid, codes.Unimplemented: ca.Unimplemented, codes.DeadlineExceeded: ca.Deadline, codes.Internal: ca.Internal,
}
