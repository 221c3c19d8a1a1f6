package discovery

import (
	"context"
	"crypto/x509"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// session is one stream or fetch, from its admission to its end.
type session struct {
	number   uint64
	service  string
	peer     string // its address
	identity authn.Identity
	chain    []*x509.Certificate // where that is how it was verified
	claim    string              // the cluster in the RPC's metadata
	since    time.Time
	round    uint64 // of authentications; see [Server.Reauthorize]

	// What follows is the roster's.
	ends  time.Time
	why   ending
	place int   // in the heap, -1 where it is not there any more
	over  error // what it was ended with

	mu     sync.Mutex
	caller *Caller // nil until it is authenticated
	types  []progress
}

// progress is what a session has had of one type.
type progress struct {
	subscribed  int
	pushes      uint64
	sent, acked string
	refused     *Refusal
	// When what is to be looked at has changed first, what was looked at last, and
	// what was sent and not acknowledged yet; zero for no change.
	changed, looked, sending time.Time
	listing                  bool // names that are subscribed to come of a changed list
}

// sessionKey is where the context of a stream has its session.
type sessionKey struct{}

func (s *session) met(caller *Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = caller
}

func (s *session) admitted() *Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}

// of calls f with the progress of a type, if there is such a type.
func (s *session) of(typ int, f func(p *progress)) {
	if s == nil || typ < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.types[typ])
}

// sessionOf returns the session that the server has put into the context.
func sessionOf(ctx context.Context) *session {
	of, _ := ctx.Value(sessionKey{}).(*session)
	return of
}
