package gateway

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// store stores the watched names and their secrets. It does no networking.
type store struct {
	maxNames, maxBytes int
	linger             time.Duration
	// wanted is signalled when a name is added.
	wanted chan struct{}

	mu      sync.Mutex
	entries map[string]*entry
	bytes   int
	last    uint64
}

// entry is one name.
type entry struct {
	id       uint64 // unique across names and time
	watchers watchers.Set[func(string)]
	idle     time.Time // since when it has no watcher, if it has none
	received
	unknown bool // the service does not know it, or removed it
}

// received is what the service sent for a name.
type received struct {
	held     *xds.Resource
	sent     string    // the service's version for it
	since    time.Time // when it was received
	notAfter time.Time
	fault    string // why the last version was rejected
}

var errFull = errors.New("so many names are watched already that there is room for no other")

func newStore(c Config) *store {
	return &store{
		maxNames: c.MaxNames, maxBytes: c.MaxBytes, linger: c.Linger,
		wanted: make(chan struct{}, 1), entries: map[string]*entry{},
	}
}

// Peek implements [xds.Source].
func (s *store) Peek(_ secret.Caller, name string) (*xds.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[name]; {
	case e == nil && (!valid(name) || len(s.entries) >= s.maxNames):
		return nil, xds.ErrUnknown
	case e == nil:
		return nil, xds.ErrNotReady
	case e.unknown:
		return nil, xds.ErrUnknown
	case e.held == nil:
		return nil, xds.ErrNotReady
	default:
		return e.held, nil
	}
}

// Watch implements [xds.Source]. It subscribes to the name.
func (s *store) Watch(_ secret.Caller, name string, notify func(string)) (stop func(), err error) {
	if !valid(name) {
		return nil, xds.ErrUnknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	if e == nil {
		if len(s.entries) >= s.maxNames {
			s.drop(time.Now())
		}
		if len(s.entries) >= s.maxNames {
			return nil, errFull
		}
		s.last++
		e = &entry{id: s.last}
		s.entries[name] = e
		s.wake()
	}
	remove := e.watchers.Add(notify)
	return func() { s.leave(e, remove) }, nil
}

func (s *store) wake() {
	select {
	case s.wanted <- struct{}{}:
	default: // a signal is already pending
	}
}

func (s *store) leave(e *entry, remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remove()
	e.idle = time.Now()
}

// want is a name to subscribe to.
type want struct {
	id      uint64 // changes when a dropped name is watched again
	version string // currently held, or ""
}

// names returns the names to subscribe to.
func (s *store) names() map[string]want {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]want, len(s.entries))
	for name, e := range s.entries {
		all[name] = want{e.id, e.sent}
	}
	return all
}

// take stores a valid secret and reports whether it changed. A name dropped meanwhile
// is ignored.
func (s *store) take(name, version string, c checked) (news bool, err error) {
	s.mu.Lock()
	e := s.entries[name]
	if e == nil {
		s.mu.Unlock()
		return false, nil
	}
	if bytes := s.bytes + size(c.resource) - size(e.held); bytes > s.maxBytes {
		s.mu.Unlock()
		return false, fmt.Errorf("with it, %d bytes would be held, %d are allowed", bytes, s.maxBytes)
	}
	news = e.held == nil || e.held.Version != c.resource.Version
	if news {
		s.bytes += size(c.resource) - size(e.held)
		e.held, e.since = c.resource, time.Now()
	}
	e.sent, e.notAfter, e.unknown, e.fault = version, c.notAfter, false, ""
	s.unlockAndNotify(name, e, news)
	return news, nil
}

// remove drops the secret of a name: the service does not know it, or it is no longer
// for this gateway.
func (s *store) remove(name string) (news bool) {
	s.mu.Lock()
	e := s.entries[name]
	if e == nil {
		s.mu.Unlock()
		return false
	}
	news = !e.unknown
	s.bytes -= size(e.held)
	e.received, e.unknown = received{}, true
	s.unlockAndNotify(name, e, news)
	return news
}

// unlockAndNotify unlocks the store, then notifies the watchers.
func (s *store) unlockAndNotify(name string, e *entry, news bool) {
	var tell []func(string)
	if news {
		tell = e.watchers.All()
	}
	s.mu.Unlock()
	for _, notify := range tell {
		notify(name)
	}
}

// refuse records why the last version of a name was rejected.
func (s *store) refuse(name, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[name]; e != nil {
		e.fault = fault
	}
}

// sweep drops names that have had no watcher for a while.
func (s *store) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(now)
}

func (s *store) drop(now time.Time) {
	for name, e := range s.entries {
		if e.watchers.Len() == 0 && now.Sub(e.idle) >= s.linger {
			s.bytes -= size(e.held)
			delete(s.entries, name)
			s.wake()
		}
	}
}

func size(r *xds.Resource) int {
	if r == nil {
		return 0
	}
	return len(r.Body.GetValue())
}
