package tokenreview

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// tokenKey is the SHA-256 of a token: the token itself is not stored.
type tokenKey [sha256.Size]byte

// cache holds positive answers only: with negative ones, strangers could evict them.
type cache struct {
	most int

	mu      sync.Mutex
	byToken map[tokenKey]entry
}

type entry struct {
	authn.Identity
	since, until time.Time
}

// counts reports whether the answer is valid at now. Setting the clock back must not
// extend it.
func (e entry) counts(now time.Time) bool { return !now.Before(e.since) && now.Before(e.until) }

func (k *cache) get(key tokenKey, now time.Time) (authn.Identity, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.byToken[key]
	if !ok || !found.counts(now) {
		return authn.Identity{}, false
	}
	return found.Identity, true
}

func (k *cache) put(key tokenKey, id authn.Identity, until, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.byToken) >= k.most {
		k.makeRoom(now)
	}
	k.byToken[key] = entry{id, now, until}
}

// makeRoom evicts expired entries, or else any one: it can be reviewed again.
func (k *cache) makeRoom(now time.Time) {
	for key, held := range k.byToken {
		if !held.counts(now) {
			delete(k.byToken, key)
		}
	}
	for key := range k.byToken {
		if len(k.byToken) < k.most {
			return
		}
		delete(k.byToken, key)
	}
}
