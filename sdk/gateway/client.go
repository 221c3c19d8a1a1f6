package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// lasting is how long a stream must have been up for its end to reset the backoff.
	lasting = time.Minute
)

// Client fetches a gateway's secrets and holds them. It is an [xds.Source]. Its methods
// are safe for concurrent use. Create one with [New].
type Client struct {
	cfg Config
	*store
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
	return &Client{cfg: cfg, store: newStore(cfg), changed: make(chan struct{}, 1)}, nil
}

// Run talks to the service while any name is watched, until ctx ends. It may be called
// once. The client keeps its secrets when Run returns.
func (c *Client) Run(ctx context.Context) {
	if stop, err := c.cfg.Secrets.Watch(secret.Caller{}, c.cfg.Certificate, c.renewed); err == nil {
		defer stop()
	}
	var waits rotation.Waits
	for since := time.Now(); c.idle(ctx); {
		began := time.Now()
		err := c.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) >= lasting {
			waits.Reset()
			since = time.Now()
		}
		if err == nil {
			c.down(nil, 0)
			continue
		}
		// What is held counts for nothing: without a stream its changes are missed.
		wait := waits.After(err, time.Now(), 0, time.Since(since))
		c.down(err, wait)
		rotation.Sleep(ctx, wait, clock.Wall, c.changed)
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
	switch message := s.Message(); {
	case !known, strings.HasPrefix(message, "unexpected HTTP status code received from server: "): // a proxy's page
		reason = ca.Unavailable
	case strings.HasPrefix(message, "grpc: received message larger than max"): // by our own limit, no quota
		reason = ca.Internal
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
