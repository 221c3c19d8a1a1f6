package tokensource

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

const (
	maxJWKS = 256 << 10
	// leastWatch is how long a watch lasts at least that counts as a success.
	leastWatch = time.Minute
)

// Published are an authority's keys.
type Published struct {
	Keys jws.Keys
	JWKS []byte // what we serve of them
}

// follow watches the keys until Close.
func (s *Source) follow() {
	var waits rotation.Waits
	said, start := "", time.Now()
	for s.ctx.Err() == nil {
		began, heard := time.Now(), false
		err := s.cfg.Watch(s.ctx, func(jwks []byte) error {
			err := s.take(jwks)
			heard = heard || err == nil
			return err
		})
		if s.ctx.Err() != nil {
			return
		}
		if heard && time.Since(began) >= leastWatch {
			waits.Reset()
			said = ""
		}
		if err == nil {
			err = ca.Errorf(ca.Unavailable, "it ended without an error")
		}
		wait := waits.After(err, time.Now(), s.noHurry(), time.Since(start))
		s.noteEnd(err, wait)
		if what := text.Clean(err.Error()); what != said {
			s.cfg.Log.Warn(fmt.Sprintf("the watch of the %s ended; watching again", s.cfg.Kind.Keys), "error", what, "lasted", time.Since(began).Round(time.Second))
			said = what
		}
		if missing := ca.ActionFor(err) == ca.Missing; s.missing.Swap(missing) || missing {
			s.wake() // the call for bundles is answered all the same
		}
		if rotation.Sleep(s.ctx, wait, s.cfg.Now, s.retries) {
			waits.Reset()
		}
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
	next, err := s.cfg.Kind.ReadKeys(jwks)
	if err != nil {
		return ca.Errorf(ca.Internal, "the authority's keys: %w", err)
	}
	was, missed := s.published.Swap(next), s.missing.Swap(false)
	s.noteKeys()
	if was == nil || missed || string(was.JWKS) != string(next.JWKS) {
		s.cfg.Log.Info(fmt.Sprintf("received the keys of %ss", s.cfg.Kind.Name), "keys", len(next.Keys))
		s.wake()
	}
	return nil
}

// ReadKeys reads a JWK set.
func (k Kind) ReadKeys(jwks []byte) (*Published, error) {
	if len(jwks) > maxJWKS {
		return nil, fmt.Errorf("they have %d bytes, %d are allowed", len(jwks), maxJWKS)
	}
	keys, err := k.ParseKeys(jwks)
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
		out.Keys = append(out.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Use: k.Use})
	}
	served, err := json.Marshal(out)
	return &Published{keys, served}, err
}

// ReadBundle is ReadKeys for the keys of another trust domain, which may have revoked all of them.
func (k Kind) ReadBundle(jwks []byte) (*Published, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if len(jwks) <= maxJWKS && json.Unmarshal(jwks, &set) == nil && set.Keys != nil && len(set.Keys) == 0 {
		return &Published{JWKS: NoKeys}, nil
	}
	return k.ReadKeys(jwks)
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

// NoKeys is an empty JWK set.
var NoKeys = []byte(`{"keys":[]}`)

// Published returns the authority's keys; nil while they are not known.
func (s *Source) Published() *Published { return s.published.Load() }

// Missing reports whether the authority lacks the ability.
func (s *Source) Missing() bool { return s.missing.Load() }

// Keys returns the public keys, a JWK set that must not be modified: nil while they are not known,
// and an empty set if the authority signs no such tokens.
func (s *Source) Keys() []byte {
	if p := s.published.Load(); p != nil {
		return p.JWKS
	}
	if s.missing.Load() {
		return NoKeys
	}
	return nil
}

// Watch calls notify after each change of Keys, until stop. notify must not block.
func (s *Source) Watch(notify func()) (stop func()) { return s.watchers.Add(notify) }

// unfollowed returns why a key that is not known here may be the authority's all the same.
func (s *Source) unfollowed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch failure := s.record.keysFailure; {
	case failure != nil:
		return ca.Errorf(ca.Unavailable, "failed to verify a %s: the %s are not followed: %s", s.cfg.Kind.Name, s.cfg.Kind.Keys, failure.Text)
	case s.published.Load() == nil:
		return ca.Errorf(ca.Unavailable, "failed to verify a %s: the %s are not known yet", s.cfg.Kind.Name, s.cfg.Kind.Keys)
	}
	return nil
}

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
			if found := p.Keys.Find(id, algorithm); len(found) > 0 {
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
