package tlsconfig

import (
	"crypto/tls"
	"slices"
	"time"
)

// versions are the secrets that a session depends on.
type versions struct {
	pair  *keyPair  // nil: no certificate is presented
	roots *Verifier // nil: the peer is not verified
}

// settling is how long after a change no new session may be resumed. A handshake that
// began before a change may end after it, and it is then unknown which certificate it
// presented. Taken as one of the new version, its session would bring the old certificate
// back repeatedly, until a handshake is refused for it.
const settling = 30 * time.Second

// tag identifies the current secrets. It is "" if one is missing; then nothing is resumed.
func (v versions) tag() string {
	tag, _ := v.tagSince()
	return tag
}

// settled returns the tag for a new session, or "" if it must not be resumed.
func (v versions) settled() string {
	tag, since := v.tagSince()
	if !since.IsZero() && time.Since(since) < settling {
		return ""
	}
	return tag
}

func (v versions) tagSince() (tag string, since time.Time) {
	pair, roots := "-", "-"
	var rootsSince time.Time
	if v.pair != nil {
		pair, since = v.pair.version()
	}
	if v.roots != nil {
		roots, rootsSince = v.roots.version()
	}
	if pair == "" || roots == "" {
		return "", since
	}
	if rootsSince.After(since) {
		since = rootsSince
	}
	return "countersign " + pair + " " + roots, since
}

// tickets are a server's session tickets. Each carries the tag of its secrets and is
// ignored once that changes. Otherwise VerifyConnection would refuse the resumed session
// of a peer that has since renewed its certificate, which a full handshake would have
// presented.
type tickets struct {
	cfg  *tls.Config // its keys encrypt the tickets, also for clones
	held versions
}

func (t *tickets) hook() {
	t.cfg.WrapSession, t.cfg.UnwrapSession = t.wrap, t.unwrap
}

func (t *tickets) wrap(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	session.Extra = append(session.Extra, []byte(t.held.settled()))
	return t.cfg.EncryptTicket(state, session)
}

// unwrap returns nil for a ticket that must not be resumed.
func (t *tickets) unwrap(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
	session, err := t.cfg.DecryptTicket(ticket, state)
	if err != nil || session == nil {
		return nil, err
	}
	tag := t.held.tag()
	made := func(extra []byte) bool { return string(extra) == tag }
	if tag == "" || !slices.ContainsFunc(session.Extra, made) {
		return nil, nil
	}
	return session, nil
}

// sessions are a client's sessions, keyed by the tag of their secrets: outdated ones are
// no longer found and are evicted in time.
type sessions struct {
	tls.ClientSessionCache
	held versions
}

// Get returns a session that may be resumed.
func (s *sessions) Get(key string) (*tls.ClientSessionState, bool) {
	tag := s.held.tag()
	if tag == "" {
		return nil, false
	}
	return s.ClientSessionCache.Get(tag + " " + key)
}

// Put caches a session, or removes it if session is nil.
func (s *sessions) Put(key string, session *tls.ClientSessionState) {
	tag := s.held.tag()
	if session != nil {
		tag = s.held.settled()
	}
	if tag != "" {
		s.ClientSessionCache.Put(tag+" "+key, session)
	}
}
