package tokenreview

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxToken equals the limit of the provider protocol.
const maxToken = 64 << 10

// Reviewer has one API server review tokens. It is safe for concurrent use: concurrent
// callers with one token share one review, and positive answers are cached.
type Reviewer struct {
	cfg      Config
	template authn.Template
	client   *endpoint.Client
	flights  singleflight.Group // keyed by token hash
	slots    chan struct{}      // one for each review in progress
	kept     *kept
}

var _ authn.Authenticator = (*Reviewer)(nil)

// Authenticate has the token reviewed or returns the cached answer. If the API server
// does not answer, the error is [authn.ErrUnavailable].
func (r *Reviewer) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	if c.Token == "" {
		return authn.Identity{}, authn.ErrNotMine
	}
	if fault := faultOf(c.Token); fault != "" {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "%s", fault)
	}
	key := tokenKey(sha256.Sum256([]byte(c.Token.Reveal())))
	if id, ok := r.kept.get(key, r.cfg.Now()); ok {
		return id, nil
	}
	// The first caller may go away: the review continues for the others.
	done := r.flights.DoChan(string(key[:]), func() (any, error) { return r.flight(key, c.Token) })
	select {
	case result := <-done:
		id, _ := result.Val.(authn.Identity)
		return id, result.Err
	case <-ctx.Done():
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "wait for the API server: %w", context.Cause(ctx))
	}
}

// faultOf says why a token is not sent at all.
func faultOf(token ca.Token) string {
	switch {
	case len(token) > maxToken:
		return "the token has more than 65536 bytes"
	case strings.ContainsFunc(token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }):
		return "the token has a space or a character that is not printable ASCII"
	}
	return ""
}

// flight is one review, shared by all waiting callers.
func (r *Reviewer) flight(key tokenKey, token ca.Token) (authn.Identity, error) {
	// An earlier review may have ended since the caller looked.
	if id, ok := r.kept.get(key, r.cfg.Now()); ok {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	// Made-up tokens must not flood the API server.
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "%d reviews are already in progress", maxInFlight)
	}
	id, err := r.review(ctx, token)
	if err != nil {
		return authn.Identity{}, err // and cached for no one
	}
	r.kept.put(key, id, r.until(id), r.cfg.Now())
	return id, nil
}

// until returns how long an answer is valid.
func (r *Reviewer) until(id authn.Identity) time.Time {
	until := r.cfg.Now().Add(r.cfg.Keep)
	if !id.Expiry.IsZero() && id.Expiry.Before(until) {
		return id.Expiry
	}
	return until
}

// Close closes idle connections. The reviewer may be used again.
func (r *Reviewer) Close() { r.client.Close() }
