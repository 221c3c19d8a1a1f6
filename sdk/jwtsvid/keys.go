package jwtsvid

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const maxJWKS = 256 << 10

// published are the authority's keys.
type published struct {
	keys jws.Keys
	jwks []byte // what we serve of them
}

// follow watches the keys until Close.
func (s *Source) follow() {
	var waits rotation.Waits
	said, start := "", time.Now()
	for s.ctx.Err() == nil {
		began, heard := time.Now(), false
		err := s.cfg.Signer.WatchJWTKeys(s.ctx, func(jwks []byte) error {
			err := s.take(jwks)
			heard = heard || err == nil
			return err
		})
		if s.ctx.Err() != nil {
			return
		}
		if heard {
			waits.Reset()
			said = ""
		}
		if err == nil {
			err = ca.Errorf(ca.Unavailable, "it ended without an error")
		}
		wait := waits.After(err, time.Now(), s.noHurry(), time.Since(start))
		s.noteEnd(err, wait)
		if what := text.Clean(err.Error()); what != said {
			s.cfg.Log.Warn("the watch of the JWT keys ended; watching again", "error", what, "lasted", time.Since(began).Round(time.Second))
			said = what
		}
		if s.missing.Store(ca.ActionFor(err) == ca.Missing); s.missing.Load() {
			s.wake() // FetchJWTBundles is answered all the same
		}
		rotation.Sleep(s.ctx, wait, s.cfg.Now, nil)
	}
}

// noHurry returns how long the keys that are known are taken to stay good; zero without any.
func (s *Source) noHurry() time.Duration {
	if s.published.Load() == nil {
		return 0
	}
	return 24 * time.Hour
}

// take puts a set of keys in the place of the one before, or refuses it as a whole.
func (s *Source) take(jwks []byte) error {
	next, err := readKeys(jwks)
	if err != nil {
		return ca.Errorf(ca.Internal, "the authority's keys: %w", err)
	}
	s.missing.Store(false)
	s.noteKeys()
	if was := s.published.Swap(next); was == nil || string(was.jwks) != string(next.jwks) {
		s.cfg.Log.Info("received the keys of JWT-SVIDs", "keys", len(next.keys))
		s.wake()
	}
	return nil
}

// readKeys reads a JWK set.
func readKeys(jwks []byte) (*published, error) {
	if len(jwks) > maxJWKS {
		return nil, fmt.Errorf("they have %d bytes, %d are allowed", len(jwks), maxJWKS)
	}
	keys, err := jws.ParseKeys(jwks)
	if err != nil {
		return nil, err
	}
	out := jose.JSONWebKeySet{}
	seen := map[string]bool{}
	for _, key := range keys {
		if key.KeyID == "" || seen[key.KeyID] {
			return nil, fmt.Errorf("each needs a kid of its own, and %.64q is not", key.KeyID)
		}
		seen[key.KeyID] = true
		// Nothing but the key: other members, such as certificates, are not for clients.
		out.Keys = append(out.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID})
	}
	served, err := json.Marshal(out)
	return &published{keys, served}, err
}

// wake wakes the callers that wait for keys.
func (s *Source) wake() {
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	for _, notify := range s.watchers.All() {
		notify()
	}
}

// Keys returns the public keys, a JWK set that must not be modified: nil while they are not known,
// and an empty set if the authority signs no JWT-SVIDs.
func (s *Source) Keys() []byte {
	if p := s.published.Load(); p != nil {
		return p.jwks
	}
	if s.missing.Load() {
		return []byte(`{"keys":[]}`)
	}
	return nil
}

// Watch calls notify after each change of Keys, until stop. notify must not block.
func (s *Source) Watch(notify func()) (stop func()) { return s.watchers.Add(notify) }

// await returns the keys that may have signed a token, and waits a while for them: the
// authority publishes a key before it signs, but the news may be under way.
func (s *Source) await(ctx context.Context, id, algorithm string) []jose.JSONWebKey {
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if p := s.published.Load(); p != nil {
			if found := p.keys.Find(id, algorithm); len(found) > 0 {
				return found
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
