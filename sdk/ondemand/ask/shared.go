package ask

import (
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/internal/share"
)

// Shared bounds the calls of several Memories together: four times what the default [Limits] allow
// one, in calls at once and in calls a second. Memories that wait take turns, and each may have two
// calls whatever the others have: a decider that hangs, or a flood of names, delays no other for long.
// It is safe for concurrent use.
type Shared struct {
	perSecond, burst float64

	mu      sync.Mutex
	places  share.Places
	bucket  tokenbucket.Bucket
	waiting []*Memory   // in turn
	timer   *time.Timer // for the next turn; nil: none is waited for
}

// NewShared returns a Shared for [Limits].
func NewShared() *Shared {
	const together = 4
	one := Limits{}.withDefaults()
	return &Shared{
		perSecond: together * one.PerSecond, burst: together * one.Burst,
		places: share.Places{Own: 2, Common: together * one.Calls},
	}
}

// take reports whether the Memory may make a call now. If not, its method granted is called when it
// may. The caller holds the Memory's lock.
func (s *Shared) take(m *Memory) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.waiting, m):
		return false
	case s.timer == nil && s.grant(m): // those that wait have no place
		return true
	}
	s.waiting = append(s.waiting, m)
	return false
}

// grant takes a place and a turn for a Memory, if there are some. The caller holds the lock.
func (s *Shared) grant(m *Memory) bool {
	if wait := s.bucket.Wait(time.Now(), s.perSecond, s.burst); wait > 0 {
		if s.timer == nil {
			s.timer = time.AfterFunc(wait, s.tick)
		}
		return false
	}
	if !s.places.Take(m.shares) {
		return false
	}
	m.shares++
	s.bucket.Spend()
	return true
}

func (s *Shared) tick() {
	s.mu.Lock()
	s.timer = nil
	s.mu.Unlock()
	s.wake()
}

// give takes the place of a call back. The caller holds no lock of a Memory.
func (s *Shared) give(m *Memory) {
	s.mu.Lock()
	s.places.Give(m.shares)
	m.shares--
	s.mu.Unlock()
	s.wake()
}

// wake grants calls to those that wait.
func (s *Shared) wake() {
	for m := s.next(); m != nil; m = s.next() {
		m.granted()
	}
}

// next takes out the first Memory that may make a call.
func (s *Shared) next() *Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.waiting {
		if s.grant(m) {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			return m
		}
	}
	return nil
}

// leave takes out a Memory that was closed.
func (s *Shared) leave(m *Memory) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *Memory) bool { return other == m })
	s.mu.Unlock()
	s.wake()
}
