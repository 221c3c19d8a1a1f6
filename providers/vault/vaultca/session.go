package vaultca

import (
	"context"
	"crypto/sha256"
	"math"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxSessions bounds the sessions of credentials that come with requests.
	maxSessions = 4096
	// A session is renewed when a third of its lifetime is left, and not used in its last
	// seconds. A failed renewal is tried again after the pause.
	renewPart  = 3
	lastly     = 5 * time.Second
	renewPause = 10 * time.Second
)

// lease is a token as the server returns it.
type lease struct {
	Token     string `json:"client_token"`
	Seconds   int64  `json:"lease_duration"` // 0: never expires
	Renewable bool   `json:"renewable"`
}

// session is a token to call the server with.
type session struct {
	token     ca.Token
	ours      bool // from a login of this provider, which revokes it
	key       sessionKey
	renewable bool
	renewAt   time.Time // zero: never
	ends      time.Time // zero: never
}

// sessionKey is the digest of the credential that the session was opened with, so that no
// workload uses the session of another.
type sessionKey [sha256.Size]byte

func keyOf(credential ca.Token) sessionKey { return sha256.Sum256([]byte(credential.Reveal())) }

func newSession(key sessionKey, l lease, begun time.Time) session {
	fresh := session{token: ca.Token(l.Token), key: key, renewable: l.Renewable}
	if l.Seconds > 0 {
		life := time.Duration(min(l.Seconds, math.MaxInt64/int64(time.Second))) * time.Second
		fresh.ends = begun.Add(life)
		fresh.renewAt = fresh.ends.Add(-life / renewPart)
	}
	return fresh
}

// due reports whether it is time to renew the session.
func (s session) due(now time.Time) bool { return !s.renewAt.IsZero() && !now.Before(s.renewAt) }

// over reports whether the session has expired or is about to.
func (s session) over(now time.Time) bool { return !s.ends.IsZero() && now.Add(lastly).After(s.ends) }

// longerThan reports whether s expires later than other, by more than rounding explains.
func (s session) longerThan(other session) bool {
	return s.ends.IsZero() || s.ends.After(other.ends.Add(lastly))
}

// sessions holds the current sessions and the attempts to open one. It is safe for
// concurrent use.
type sessions struct {
	mu       sync.Mutex
	held     map[sessionKey]session
	attempts map[sessionKey]*attempt
}

// attempt is made by one caller for all that wait for its result.
type attempt struct {
	done    chan struct{}
	got     session
	err     error
	dropped bool // its caller went away or panicked, so the others try again
}

func newSessions() *sessions {
	return &sessions{held: map[sessionKey]session{}, attempts: map[sessionKey]*attempt{}}
}

func (s *sessions) get(key sessionKey, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.held[key]
	return held, ok && !held.over(now)
}

func (s *sessions) keep(one session, now time.Time) session {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, one.key)
	s.makeRoom(now)
	s.held[one.key] = one
	return one
}

// makeRoom removes expired sessions and, if there are still too many, one more.
func (s *sessions) makeRoom(now time.Time) {
	var one sessionKey
	for key, held := range s.held {
		if held.over(now) {
			delete(s.held, key)
		}
		one = key
	}
	if len(s.held) >= maxSessions {
		delete(s.held, one)
	}
}

// drop removes a session, unless another has replaced it.
func (s *sessions) drop(one session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[one.key].token == one.token {
		delete(s.held, one.key)
	}
}

// takeAll removes all sessions and returns them.
func (s *sessions) takeAll() map[sessionKey]session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.held
	s.held = map[sessionKey]session{}
	return all
}

// once lets one caller at a time open a session for a credential. Callers that come
// meanwhile get the same session or the same error.
func (s *sessions) once(ctx context.Context, key sessionKey, get func() (session, error)) (session, error) {
	for {
		s.mu.Lock()
		other := s.attempts[key]
		if other == nil {
			mine := &attempt{done: make(chan struct{}), dropped: true}
			s.attempts[key] = mine
			s.mu.Unlock()
			return s.make(ctx, key, mine, get)
		}
		s.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return session{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "waiting for the login of another request")
		}
		if !other.dropped {
			return other.got, other.err
		}
	}
}

func (s *sessions) make(ctx context.Context, key sessionKey, mine *attempt, get func() (session, error)) (session, error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.attempts, key)
		close(mine.done)
	}()
	mine.got, mine.err = get()
	mine.dropped = ctx.Err() != nil
	return mine.got, mine.err
}
