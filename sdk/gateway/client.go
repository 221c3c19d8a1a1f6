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
	// The wait after a failure doubles from minWait to maxWait; the actual wait is
	// drawn between half and all of it.
	minWait, maxWait = 500 * time.Millisecond, 30 * time.Second
	// lasting is how long a stream must have been up for its end to reset the backoff.
	lasting = time.Minute
)

// Client fetches a gateway's secrets and holds them. It is an [xds.Source]. Its methods
// are safe for concurrent use. Create one with [New].
type Client struct {
	cfg Config
	*shelf
	// changed is signalled when our own certificate changes.
	changed chan struct{}

	mu     sync.Mutex
	status Status
}

// New returns a client, or an error if a required setting is missing. It starts
// nothing; see [Client.Run].
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, shelf: newShelf(cfg), changed: make(chan struct{}, 1)}, nil
}

// Run talks to the service while any name is watched, until ctx ends. It may be called
// once. The client keeps its secrets when Run returns.
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

// renewed handles a new certificate: a retry waiting for lack of one need not wait longer.
func (c *Client) renewed(string) {
	select {
	case c.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// idle waits for a name and reports whether there is one.
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

// pause waits after a failure; a new certificate ends the wait.
func (c *Client) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.changed:
	case <-ctx.Done():
	}
}

// up records that the service has answered.
func (c *Client) up(with *credential) {
	c.mu.Lock()
	c.status = Status{Connected: true, Since: time.Now(), Credential: with.kind}
	c.mu.Unlock()
	c.cfg.Observe(Connected)
	c.cfg.Log.Info("connected to discovery service", "address", c.cfg.Address, "with", with.kind)
}

// down records that there is no stream; err is nil if it was ended on purpose.
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

// explain converts a stream's final error to one of package ca: foreign text is
// truncated and the token that was sent is removed.
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
