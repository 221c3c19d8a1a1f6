package token

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	defaultMargin = 5 * time.Minute
	// A short-lived token is cached for all but a fifth of its life.
	marginPart  = 5
	defaultMost = 16384
	// flightTimeout ends an exchange even if its callers keep waiting.
	flightTimeout = 30 * time.Second
)

// CacheOptions configure a [Cache].
type CacheOptions struct {
	// Margin is how long before its expiry a token is exchanged again. Default: 5 minutes.
	// It is a fifth of the token's life at most.
	Margin time.Duration
	// Most is the maximum number of cached tokens. Default: 16384.
	Most int
	// Timeout limits an exchange. Default: 30 seconds.
	Timeout time.Duration
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives exchange failures that no caller sees. Default: [slog.Default].
	Log *slog.Logger
}

// Cache is an exchanger that caches another one's tokens until a margin before they
// expire. The cache key is the whole request: the subject token itself, not its claims,
// the audience, the scopes and the rest. Concurrent callers share one exchange. A failure
// goes to those callers only and is not cached. A Cache is safe for concurrent use.
type Cache struct {
	exchanger ca.TokenExchanger
	CacheOptions

	mu      sync.Mutex
	tokens  map[cacheKey]cachedToken
	flights map[cacheKey]*flight
}

var _ ca.TokenExchanger = (*Cache)(nil)

type cacheKey [sha256.Size]byte

// cachedToken is a cached token with the subject token it was exchanged for.
type cachedToken struct {
	ca.ExchangedToken
	subject ca.Token
	again   rotation.Pause // until the next exchange
	waits   rotation.Waits // after exchanges that failed
}

// good reports whether the token is used without another exchange.
func (k cachedToken) good(now rotation.Time) bool {
	return now.Wall.Before(k.Expiry) && !k.again.Over(now)
}

// flight is an exchange in progress, with the number of its waiting callers.
type flight struct {
	waiting int // guarded by Cache.mu
	cancel  context.CancelFunc
	done    chan struct{}
	token   ca.ExchangedToken // set before done is closed
	err     error
}

// NewCache returns an empty cache in front of exchanger. It starts no goroutine and needs
// no Close.
func NewCache(exchanger ca.TokenExchanger, opts CacheOptions) *Cache {
	opts.Margin = cmp.Or(opts.Margin, defaultMargin)
	opts.Most = cmp.Or(opts.Most, defaultMost)
	opts.Timeout = cmp.Or(opts.Timeout, flightTimeout)
	if opts.Now == nil {
		opts.Now = clock.Wall
	}
	opts.Log = cmp.Or(opts.Log, slog.Default())
	return &Cache{exchanger: exchanger, CacheOptions: opts, tokens: map[cacheKey]cachedToken{}, flights: map[cacheKey]*flight{}}
}

// ExchangeToken returns the cached token for req or waits for an exchange. A caller leaves
// when its ctx ends; the exchange continues while anyone waits for it.
func (c *Cache) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	key := keyOf(req)
	token, f := c.join(ctx, key, req)
	if f == nil {
		return token, nil
	}
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		c.leave(key, f)
		return ca.ExchangedToken{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "the token exchange took too long: %w", context.Cause(ctx))
	}
}

// keyOf returns a digest, so that the map keys hold no token.
func keyOf(req ca.TokenRequest) cacheKey {
	// Different requests have different JSON. The token hides itself in JSON.
	text, err := json.Marshal(struct {
		ca.TokenRequest
		SubjectToken string
	}{req, req.SubjectToken.Reveal()})
	if err != nil {
		panic(err) // these fields always marshal
	}
	return sha256.Sum256(text)
}

// join returns the cached token, or the flight to wait for.
func (c *Cache) join(ctx context.Context, key cacheKey, req ca.TokenRequest) (ca.ExchangedToken, *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, ok := c.tokens[key]; ok && held.good(rotation.Now(c.Now())) {
		return held.ExchangedToken, nil
	}
	f := c.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		// The flight has its own deadline: its first caller may leave before the others.
		ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
		c.flights[key] = f
		go c.fly(ctx, key, f, req)
	}
	f.waiting++
	return ca.ExchangedToken{}, f
}

// leave cancels the flight when its last caller leaves; the next caller starts another.
func (c *Cache) leave(key cacheKey, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiting--
	if f.waiting > 0 {
		return
	}
	f.cancel()
	if c.flights[key] == f {
		delete(c.flights, key)
	}
}

func (c *Cache) fly(ctx context.Context, key cacheKey, f *flight, req ca.TokenRequest) {
	defer f.cancel()
	begun := c.Now()
	f.token, f.err = c.exchanger.ExchangeToken(ctx, req)
	if f.err == nil {
		f.token, f.err = checkFresh(f.token, c.Now())
	}
	f.err = redact.Error(f.err, req.SubjectToken)
	if err := c.land(key, f, req.SubjectToken, begun); err != nil {
		c.Log.Warn("token exchange failed, using the cached token", "error", err, "until", f.token.Expiry)
	}
	close(f.done)
}

// checkFresh fills in the expiry of a JWT if the server omitted it, and rejects an expired
// token.
func checkFresh(t ca.ExchangedToken, now time.Time) (ca.ExchangedToken, error) {
	if t.Expiry.IsZero() {
		t.Expiry = Expiry(t.AccessToken)
	}
	if !t.Expiry.IsZero() && !now.Before(t.Expiry) {
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the exchange gave a token that had expired at %s", clock.Stamp(t.Expiry))
	}
	return t, nil
}

// land settles a flight that a caller still waits for. It returns the error in whose place
// the cached token is used.
func (c *Cache) land(key cacheKey, f *flight, subject ca.Token, begun time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[key] != f {
		return nil
	}
	delete(c.flights, key)
	return c.settle(key, f, subject, begun)
}

// settle caches the result. After a transient failure the cached token stays in use until
// it expires; a refusal removes it.
func (c *Cache) settle(key cacheKey, f *flight, subject ca.Token, begun time.Time) (hidden error) {
	held, ok := c.tokens[key]
	delete(c.tokens, key)
	switch {
	case f.err == nil && f.token.Expiry.IsZero():
		// Its lifetime is unknown, so do not cache it.
	case f.err == nil:
		c.makeRoom()
		margin := min(c.Margin, f.token.Expiry.Sub(begun)/marginPart)
		now := rotation.Now(c.Now())
		again := rotation.NewPause(f.token.Expiry.Add(-margin).Sub(now.Wall), now)
		c.tokens[key] = cachedToken{ExchangedToken: f.token, subject: subject, again: again}
	case ok && ca.ActionFor(f.err) == ca.Wait && c.Now().Before(held.Expiry):
		now := rotation.Now(c.Now())
		held.again = rotation.NewPause(held.waits.After(f.err, now.Mono, held.Expiry.Sub(now.Wall), 0), now)
		hidden, c.tokens[key], f.token, f.err = f.err, held, held.ExchangedToken, nil
	}
	return hidden
}

// makeRoom removes expired tokens and, if needed, the one that expires first.
func (c *Cache) makeRoom() {
	if len(c.tokens) < c.Most {
		return
	}
	now := c.Now()
	var first cacheKey
	var end time.Time
	for key, held := range c.tokens {
		if !now.Before(held.Expiry) {
			delete(c.tokens, key)
		} else if end.IsZero() || held.Expiry.Before(end) {
			first, end = key, held.Expiry
		}
	}
	if len(c.tokens) >= c.Most {
		delete(c.tokens, first)
	}
}

// drop removes a rejected token and returns the subject token it was exchanged for.
func (c *Cache) drop(t ca.Token) (subject ca.Token, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, held := range c.tokens {
		if held.AccessToken == t {
			delete(c.tokens, key)
			return held.subject, true
		}
	}
	return "", false
}
