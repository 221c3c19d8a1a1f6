package jwt

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/authn"
)

const (
	// An unknown key ID triggers at most one fetch per minInterval, however many IDs
	// callers make up.
	minInterval = time.Minute
	// Without any key no caller can be admitted, so retries are more frequent.
	firstInterval = 5 * time.Second
	fetchTimeout  = 10 * time.Second
	// staleAfter is how long a caller waits for fresh keys if the stale ones have the key
	// it needs: long enough for an issuer that is up to withdraw a key in time, and far
	// less than callers have.
	staleAfter = time.Second
)

// keys holds an issuer's keys and refetches them when they are stale, or when a token
// names an unknown key.
type keys struct {
	fetch func(context.Context) (fetched, error)
	now   func() time.Time
	log   *slog.Logger

	flight singleflight.Group

	mu     sync.Mutex
	held   fetched   // kept while the issuer does not answer
	since  time.Time // when it was fetched
	tried  time.Time // when the last fetch began
	trying bool      // a fetch is in progress
	failed error     // error of the last attempt
}

// fetched is a set of keys with the time it may be used without refetching.
type fetched struct {
	jws.Keys
	life time.Duration
}

func newKeys(cfg Config) *keys {
	return &keys{fetch: newSource(cfg).fetch, now: cfg.Now, log: cfg.Log.With("issuer", cfg.Issuer)}
}

// find returns the keys that may have signed a token, at least one. It waits for fresh
// keys, but if stale ones will do, not long: an issuer that hangs keeps no caller out.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	found, due := k.look(id, algorithm)
	if due {
		var enough <-chan time.Time
		if len(found) > 0 {
			enough = time.After(staleAfter)
		}
		select {
		case <-k.flight.DoChan("", k.refresh):
			found, _ = k.look(id, algorithm)
		case <-enough:
			return found, nil
		case <-ctx.Done():
			return nil, authn.Errorf(authn.ErrUnavailable, "wait for the issuer's keys: %w", context.Cause(ctx))
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		// The key may be among those that could not be fetched.
		return nil, authn.Errorf(authn.ErrUnavailable, "the issuer's keys: %w", k.failed)
	}
	return nil, authn.Errorf(authn.ErrRefused, "the issuer has no key %q for %s", id, algorithm)
}

// look returns the matching keys, and whether to fetch, or wait for a fetch in
// progress, before using them.
func (k *keys) look(id, algorithm string) (found []jose.JSONWebKey, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found = k.held.Find(id, algorithm)
	age := k.now().Sub(k.since)
	// Setting the clock back must not make old keys fresh.
	stale := age < 0 || age >= k.held.life
	return found, (stale || len(found) == 0) && (k.trying || k.rested())
}

// rested reports whether the last attempt is long enough ago. The caller holds mu.
func (k *keys) rested() bool {
	interval := minInterval
	if k.held.Keys == nil {
		interval = firstInterval
	}
	passed := k.now().Sub(k.tried)
	return passed >= interval || passed < 0
}

// begin reports whether to try now: another attempt may have just ended.
func (k *keys) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rested() {
		return false
	}
	k.tried, k.trying = k.now(), true
	return true
}

// refresh fetches for all waiting callers; the first caller's context does not end it.
func (k *keys) refresh() (any, error) {
	if !k.begin() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	got, err := k.fetch(ctx)
	held := k.keep(got, err)
	if err != nil {
		k.log.Warn("cannot fetch the keys of a JWT issuer", "held", held, "error", err)
	}
	return nil, err
}

// keep stores the result and returns the number of keys now held.
func (k *keys) keep(got fetched, err error) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed, k.trying = err, false
	if err == nil {
		k.held, k.since = got, k.now()
	}
	return len(k.held.Keys)
}
