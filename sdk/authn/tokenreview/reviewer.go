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

// maxToken is what the protocol to a provider takes, too.
const maxToken = 64 << 10

// Reviewer asks one API server who has a token. It is safe for concurrent use: many
// callers with one token cost one review, and a good answer is kept for a while.
type Reviewer struct {
	cfg      Config
	template authn.Template
	client   *endpoint.Client
	flights  singleflight.Group // by token
	slots    chan struct{}      // one for each review on its way
	kept     *kept
}

var _ authn.Authenticator = (*Reviewer)(nil)

// Authenticate has the token reviewed, or returns what a review has told before. An
// API server that does not answer is [authn.ErrUnavailable].
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
	// The first caller may go away: the review goes on for the others.
	done := r.flights.DoChan(string(key[:]), func() (any, error) { return r.flight(key, c.Token) })
	select {
	case result := <-done:
		id, _ := result.Val.(authn.Identity)
		return id, result.Err
	case <-ctx.Done():
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "wait for the API server: %w", context.Cause(ctx))
	}
}

// faultOf says why a token is not even sent.
func faultOf(token ca.Token) string {
	switch {
	case len(token) > maxToken:
		return "the token has more than 65536 bytes"
	case strings.ContainsFunc(token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }):
		return "the token has a space or a character that is not printable ASCII"
	}
	return ""
}

// flight is one review for all who wait for it.
func (r *Reviewer) flight(key tokenKey, token ca.Token) (authn.Identity, error) {
	// The review before may have ended since the caller looked.
	if id, ok := r.kept.get(key, r.cfg.Now()); ok {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	// Whoever makes up tokens must not send the API server a flood of them.
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "%d reviews are on their way already", maxInFlight)
	}
	id, err := r.review(ctx, token)
	if err != nil {
		return authn.Identity{}, err // and kept for nobody
	}
	r.kept.put(key, id, r.until(id), r.cfg.Now())
	return id, nil
}

// until is how long an answer is believed.
func (r *Reviewer) until(id authn.Identity) time.Time {
	until := r.cfg.Now().Add(r.cfg.Keep)
	if !id.Expiry.IsZero() && id.Expiry.Before(until) {
		return id.Expiry
	}
	return until
}

// Close ends the connections that are kept for the next review. The reviewer may be
// used again.
func (r *Reviewer) Close() { r.client.Close() }
