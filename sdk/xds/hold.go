package xds

import (
	"slices"
	"time"
)

// needing reports whether a changed resource needs one that another provides.
func (s *subscription) needing() bool {
	return len(s.providers) > 0 && slices.ContainsFunc(s.dirty, func(e *entry) bool {
		return e.known != "" || e.sent != nil && e.sent.Needs != ""
	})
}

// holds delays e if a provider of tag is in flight, and reports whether it did.
func (s *subscription) holds(e *entry, tag string, now time.Time) bool {
	until := s.provided(tag)
	// The first deadline stands: providers that keep changing must not starve the
	// resources that need them.
	if e.until.IsZero() {
		e.until = until
	}
	if until.IsZero() || !now.Before(e.until) {
		return false
	}
	if !e.held {
		e.held = true
		s.held = append(s.swept(s.held), e)
	}
	if s.release.IsZero() || e.until.Before(s.release) {
		s.release = e.until
	}
	return true
}

// provided returns the deadline for the in-flight provider of tag: zero if the client
// acknowledged a provider, or if the stream has none.
func (s *subscription) provided(tag string) (until time.Time) {
	for _, p := range s.providers {
		if !slices.Contains(p.sent.Provides, tag) {
			continue
		}
		if p.seq <= s.acked && !p.nacked {
			return time.Time{}
		}
		if t := p.sentAt.Add(s.policy.hold); t.After(until) {
			until = t
		}
	}
	return until
}

// unhold schedules another lookup of everything held.
func (s *subscription) unhold() {
	held := s.held
	s.held, s.release = nil, time.Time{}
	for _, e := range held {
		e.held = false
		s.look(e)
	}
}
