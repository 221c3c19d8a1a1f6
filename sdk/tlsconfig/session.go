package tlsconfig

import (
	"crypto/tls"
	"slices"
	"time"
)

// versions are those of the secrets that a session depends on.
type versions struct {
	pair  *keyPair  // nil: none is shown
	roots *Verifier // nil: the peer is not verified
}

// settling is how long after a change nothing new is kept for resuming. A handshake
// that began before a change may end after it, and nothing tells then which certificate
// it has shown: its session, taken for one of the new version, would bring the old
// certificate back again and again, until a handshake is refused for it.
const settling = 30 * time.Second

// tag stands for the secrets held now. It is "" where one of them is missing; then
// nothing is resumed.
func (v versions) tag() string {
	tag, _ := v.tagSince()
	return tag
}

// settled returns the tag for a new session, or "" where it is not to be resumed.
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
		roots, rootsSince = v.roots.roots.version()
	}
	if pair == "" || roots == "" {
		return "", since
	}
	if rootsSince.After(since) {
		since = rootsSince
	}
	return "countersign " + pair + " " + roots, since
}

// tickets are a server's: each carries the tag of what it was made under, and is
// passed over once that has changed. Without it a resumed session of a peer that has
// since got a new certificate would be refused by VerifyConnection, where a full
// handshake would have shown that certificate.
type tickets struct {
	cfg  *tls.Config // whose keys encrypt, also for clones of it
	held versions
}

func (t *tickets) hook() {
	t.cfg.WrapSession, t.cfg.UnwrapSession = t.wrap, t.unwrap
}

func (t *tickets) wrap(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
	session.Extra = append(session.Extra, []byte(t.held.settled()))
	return t.cfg.EncryptTicket(state, session)
}

// unwrap returns nil for a ticket that is not to be resumed.
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

// sessions are a client's, kept by what they were made under: those of before are
// not found any more, and fall out in time.
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

// Put keeps a session, or forgets one where it is nil.
func (s *sessions) Put(key string, session *tls.ClientSessionState) {
	tag := s.held.tag()
	if session != nil {
		tag = s.held.settled()
	}
	if tag != "" {
		s.ClientSessionCache.Put(tag+" "+key, session)
	}
}
