package tokenreview

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// maxToken is in bytes. A projected Kubernetes token takes 1 to 2 KiB.
const maxToken = 16 << 10

// Reviewer has one API server review tokens. It is safe for concurrent use: concurrent
// callers with one token share one review, and positive answers are cached. [MaxInFlight]
// reviews are in progress at most, [Config].OfPeer for one peer.
type Reviewer struct {
	cfg      Config
	template authn.Template
	client   *kubeapi.Client
	slots    *slots
	cache    *cache

	mu      sync.Mutex
	flights map[tokenKey]*flight
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
	if id, ok := r.cache.get(key, r.cfg.Now()); ok {
		return id, nil
	}
	// The first caller may go away: the review continues for the others.
	f := r.join(key, c)
	defer r.leave(key, f)
	select {
	case <-f.done:
		return f.id, f.err
	case <-ctx.Done():
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "wait for the API server: %w", context.Cause(ctx))
	}
}

// faultOf returns why a token is not sent at all.
func faultOf(token ca.Token) string {
	switch {
	case len(token) > maxToken:
		return "the token has more than 16384 bytes"
	case strings.ContainsFunc(token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }):
		return "the token has a space or a character that is not printable ASCII"
	}
	return ""
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
