package discovery

import (
	"context"
	"crypto/x509"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
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

// watch returns the source of a type, watched.
func watch(source xds.Source[*Caller], typ int) xds.Source[*Caller] { return watched{source, typ} }

// watched is a source that notes who has subscribed to how much, and when what they
// watch has changed.
type watched struct {
	xds.Source[*Caller]
	typ int
}

// Watch asks the source.
func (w watched) Watch(caller *Caller, name string, notify func(string)) (func(), error) {
	of := caller.session
	stop, err := w.Source.Watch(caller, name, func(name string) {
		of.of(w.typ, (*progress).change)
		notify(name)
	})
	if err != nil {
		return nil, err
	}
	of.of(w.typ, (*progress).subscribe)
	return func() {
		of.of(w.typ, (*progress).unsubscribe)
		stop()
	}, nil
}

// Peek asks the source.
func (w watched) Peek(caller *Caller, name string) (*xds.Resource, error) {
	caller.session.of(w.typ, (*progress).look)
	return w.Source.Peek(caller, name)
}

func (p *progress) change() {
	if p.changed.IsZero() {
		p.changed = time.Now()
	}
}

// A new name is sent for being asked for, not because something has changed.
func (p *progress) subscribe()   { p.subscribed++; p.looked = time.Time{} }
func (p *progress) unsubscribe() { p.subscribed-- }

// look begins to measure: what has changed before is in what is sent next, if in
// anything.
func (p *progress) look() {
	if !p.changed.IsZero() {
		p.looked, p.changed = p.changed, time.Time{}
	}
}

// push returns how long what was sent took since it had changed; false where no change
// was the reason.
func (p *progress) push(version string) (time.Duration, bool) {
	p.pushes++
	p.sent, p.sending, p.looked = version, p.looked, time.Time{}
	return time.Since(p.sending), !p.sending.IsZero()
}

// ack is the same for the acknowledgement.
func (p *progress) ack(version string) (time.Duration, bool) {
	began := p.sending
	p.sending = time.Time{}
	if version != "" {
		p.acked = version
	}
	return time.Since(began), !began.IsZero()
}

// sessionOf returns the session that the server has put into the context.
func sessionOf(ctx context.Context) *session {
	of, _ := ctx.Value(sessionKey{}).(*session)
	return of
}
