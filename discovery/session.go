package discovery

import (
	"context"
	"crypto/x509"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// session is one stream or fetch, from admission to end.
type session struct {
	number   uint64
	service  string
	peer     string // remote address
	identity authn.Identity
	chain    []*x509.Certificate // if the identity was verified by it
	claim    string              // the cluster in the RPC's metadata
	since    time.Time
	round    uint64 // of authentications; see [Server.Reauthorize]

	// The sessions owns the fields below.
	holder holder // whose limit it counts against
	ends   time.Time
	why    ending
	place  int   // index in the heap, -1 once removed
	over   error // the status that ended it

	mu     sync.Mutex
	caller *Caller // nil until authenticated
	types  []progress
}

// progress is the state of one type on a session.
type progress struct {
	subscribed  int
	pushes      uint64
	sent, acked string
	refused     *Refusal
	rejected    int
	// When pending changes began before a lookup, in the last lookup, and in an
	// unacknowledged response; zero for no change.
	changed, looked, sending time.Time
	listing                  bool // subscriptions now come from a changed list
}

// sessionKey is the context key of a stream's session.
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

// of calls f with the progress of a type, if the type exists.
func (s *session) of(typ int, f func(p *progress)) {
	if s == nil || typ < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.types[typ])
}

// sessionOf returns the session in the context.
func sessionOf(ctx context.Context) *session {
	of, _ := ctx.Value(sessionKey{}).(*session)
	return of
}
