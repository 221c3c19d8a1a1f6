package token

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	defaultMargin = 5 * time.Minute
	// A token that lives shorter than that margin is kept, too: all but a fifth of
	// its life.
	marginPart  = 5
	defaultMost = 16384
	// flightTimeout ends an exchange whose callers do not.
	flightTimeout = 30 * time.Second
)

// CacheOptions tune a [Cache].
type CacheOptions struct {
	// Margin is how long before its end a token is exchanged anew. Default: 5 minutes,
	// or a fifth of the token's life where that is less.
	Margin time.Duration
	// Most is how many tokens are kept. Default: 16384.
	Most int
	// Timeout ends an exchange. Default: 30 seconds.
	Timeout time.Duration
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log is told of a failed exchange that nobody else hears of. Default: silent.
	Log *slog.Logger
}

// Cache is an exchanger that keeps what another one answered, until a margin before
// it ends, for the very same request: the subject's token, not what that claims to
// be, the audience, the scopes and the rest. However many ask at once, one exchange
// is made. A failure is kept for nobody but those who wait for it. It is safe for
// concurrent use.
type Cache struct {
	exchanger ca.TokenExchanger
	CacheOptions

	mu      sync.Mutex
	kept    map[cacheKey]kept
	flights map[cacheKey]*flight
}

var _ ca.TokenExchanger = (*Cache)(nil)

type cacheKey [sha256.Size]byte

// kept is what was answered, and for whom.
type kept struct {
	ca.ExchangedToken
	subject ca.Token
	until   time.Time // from when on it is to be exchanged anew
}

// flight is an exchange on its way, and how many wait for it.
type flight struct {
	waiting int // guarded by Cache.mu
	cancel  context.CancelFunc
	done    chan struct{}
	token   ca.ExchangedToken // once done
	err     error
}

// NewCache returns an empty cache for what exchanger answers. It starts nothing and has
// nothing to be closed.
func NewCache(exchanger ca.TokenExchanger, opts CacheOptions) *Cache {
	if opts.Margin == 0 {
		opts.Margin = defaultMargin
	}
	if opts.Most == 0 {
		opts.Most = defaultMost
	}
	if opts.Timeout == 0 {
		opts.Timeout = flightTimeout
	}
	if opts.Now == nil {
		opts.Now = clock.Wall
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Cache{exchanger: exchanger, CacheOptions: opts, kept: map[cacheKey]kept{}, flights: map[cacheKey]*flight{}}
}

// ExchangeToken returns what is kept for req, or waits for an exchange. A caller
// whose ctx ends leaves; the exchange goes on as long as one waits for it.
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

// keyOf is a digest, so that the map holds no token.
func keyOf(req ca.TokenRequest) cacheKey {
	// As JSON, no two requests read the same; the token hides itself there.
	text, err := json.Marshal(struct {
		ca.TokenRequest
		SubjectToken string
	}{req, req.SubjectToken.Reveal()})
	if err != nil {
		panic(err) // text always can be
	}
	return sha256.Sum256(text)
}

// join returns what is kept, or the flight to wait for.
func (c *Cache) join(ctx context.Context, key cacheKey, req ca.TokenRequest) (ca.ExchangedToken, *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, ok := c.kept[key]; ok && c.Now().Before(held.until) {
		return held.ExchangedToken, nil
	}
	f := c.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		// Its own end: who began it may give up before the others.
		ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
		c.flights[key] = f
		go c.fly(ctx, key, f, req)
	}
	f.waiting++
	return ca.ExchangedToken{}, f
}

// leave ends the flight with its last caller; the next one begins another.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[key] == f {
		delete(c.flights, key)
		c.settle(key, f, req.SubjectToken, begun)
	}
	close(f.done)
}

// checkFresh fills in the expiry of a JWT whose issuer did not tell it.
func checkFresh(t ca.ExchangedToken, now time.Time) (ca.ExchangedToken, error) {
	if t.Expiry.IsZero() {
		t.Expiry = Expiry(t.AccessToken)
	}
	if !t.Expiry.IsZero() && !now.Before(t.Expiry) {
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the exchange gave a token that had expired at %s", clock.Stamp(t.Expiry))
	}
	return t, nil
}

// settle keeps what came. Where it failed in a way that may pass, what was kept is
// good to its end; a no ends it.
func (c *Cache) settle(key cacheKey, f *flight, subject ca.Token, begun time.Time) {
	held, ok := c.kept[key]
	delete(c.kept, key)
	switch {
	case f.err == nil && f.token.Expiry.IsZero():
		// Nobody knows how long it is good.
	case f.err == nil:
		c.makeRoom()
		margin := min(c.Margin, f.token.Expiry.Sub(begun)/marginPart)
		c.kept[key] = kept{f.token, subject, f.token.Expiry.Add(-margin)}
	case ok && ca.ActionFor(f.err) == ca.Wait && c.Now().Before(held.Expiry):
		c.Log.Warn("token exchange failed, using the cached token", "error", f.err, "until", held.Expiry)
		c.kept[key], f.token, f.err = held, held.ExchangedToken, nil
	}
}

// makeRoom lets go of what has ended, or of what ends first.
func (c *Cache) makeRoom() {
	if len(c.kept) < c.Most {
		return
	}
	now := c.Now()
	var first cacheKey
	var end time.Time
	for key, held := range c.kept {
		if !now.Before(held.Expiry) {
			delete(c.kept, key)
		} else if end.IsZero() || held.Expiry.Before(end) {
			first, end = key, held.Expiry
		}
	}
	if len(c.kept) >= c.Most {
		delete(c.kept, first)
	}
}

// drop forgets a token that was not accepted, and returns what it was exchanged for.
func (c *Cache) drop(t ca.Token) (subject ca.Token, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, held := range c.kept {
		if held.AccessToken == t {
			delete(c.kept, key)
			return held.subject, true
		}
	}
	return "", false
}
