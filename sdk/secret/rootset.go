package secret

import (
	"crypto/x509"
	"maps"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// rootSet is what one authority has said about its roots. It has no clock, no goroutine
// and no lock: its owner passes in the time.
type rootSet struct {
	told    *pki.Bundle // the last set from a RootSource or RootWatcher
	changed time.Time   // when told last changed
	replied *pki.Bundle // the roots of the last reply, if newer than told
	dropped map[string]droppedRoot
}

// droppedRoot is a root that the authority no longer names. It stays until the
// certificates under it have expired.
type droppedRoot struct {
	cert  *x509.Certificate
	until time.Time // by the wall clock
	after time.Time // by the monotonic one; zero: until the next look at what is served
	// restored: the root comes from the last run and the authority has not spoken yet, so
	// it is unknown whether it was dropped.
	restored bool
}

func (s *rootSet) current() *pki.Bundle { return s.told.Union(s.replied) }

// announce replaces the set of roots as of now. It supersedes earlier replies; roots that are
// gone stay until the time that until returns.
func (s *rootSet) announce(roots *pki.Bundle, now time.Time, until func() time.Time) {
	if roots.Equal(s.told) {
		return // nothing new, and no reason to doubt later replies
	}
	s.endRestored(until)
	before := s.current()
	s.told, s.replied, s.changed = roots, nil, now
	s.drop(before, until)
}

// reply takes the roots of a reply to a request sent at asked. They add to the told set,
// as many authorities name only the root of that one chain. If the authority never tells a
// set, they are the whole set.
//
// A reply that was in flight while the told set changed may be outdated: its roots count
// as dropped.
func (s *rootSet) reply(roots *pki.Bundle, asked time.Time, until func() time.Time) {
	if roots.Len() == 0 {
		return
	}
	s.endRestored(until)
	if s.told != nil && asked.Before(s.changed) {
		s.drop(roots, until)
		return
	}
	before := s.current()
	s.replied = roots
	s.drop(before, until)
}

// drop keeps those of roots that are no longer current, until the time until returns.
func (s *rootSet) drop(roots *pki.Bundle, until func() time.Time) {
	current := s.current()
	for _, cert := range roots.Certificates() {
		if !current.Contains(cert) {
			s.remember(pki.Fingerprint(cert), droppedRoot{cert: cert, until: until()})
		}
	}
	maps.DeleteFunc(s.dropped, func(_ string, d droppedRoot) bool { return current.Contains(d.cert) })
}

// leave drops all roots: each stays until the time that until returns, or longer if it was
// to stay longer already.
func (s *rootSet) leave(until func() time.Time) {
	s.endRestored(until)
	before := s.current()
	s.told, s.replied = nil, nil
	s.drop(before, until)
}

// restore takes a root of the last run. No limit is needed: the record holds only served
// roots.
func (s *rootSet) restore(d droppedRoot) {
	if s.dropped == nil {
		s.dropped = make(map[string]droppedRoot)
	}
	s.dropped[pki.Fingerprint(d.cert)] = d
}

// endRestored ends the special treatment of restored roots: those that the authority does not
// name now are dropped like any other, and none stays longer than its record allows.
func (s *rootSet) endRestored(until func() time.Time) {
	for print, d := range s.dropped {
		if d.restored {
			s.dropped[print] = droppedRoot{cert: d.cert, until: clock.Earlier(d.until, until())}
		}
	}
}

func (s *rootSet) remember(print string, d droppedRoot) {
	if s.dropped == nil {
		s.dropped = make(map[string]droppedRoot)
	}
	old, known := s.dropped[print]
	if known && old.until.After(d.until) || !known && !s.hasRoom(d.cert) {
		return
	}
	s.dropped[print] = d
}

func (s *rootSet) hasRoom(cert *x509.Certificate) bool {
	size := len(cert.Raw)
	for _, d := range s.dropped {
		size += len(d.cert.Raw)
	}
	return len(s.dropped) < maxDropped && size <= maxRootsSize
}

// over reports whether both clocks say that the time of a dropped root is over: one that was
// set ahead for a minute must not remove what peers still need.
func (d *droppedRoot) over(now rotation.Time) bool {
	if d.after.IsZero() {
		d.after = now.Mono.Add(max(0, d.until.Sub(now.Wall)))
	}
	return !d.until.After(now.Wall) && !d.after.After(now.Mono)
}

// prune forgets the dropped roots whose time is over.
func (s *rootSet) prune(now rotation.Time) {
	for print, d := range s.dropped {
		if d.over(now) {
			delete(s.dropped, print)
		} else {
			s.dropped[print] = d
		}
	}
}

// served returns the roots to serve at now. No root is served beyond its own NotAfter.
func (s *rootSet) served(now rotation.Time) *pki.Bundle {
	s.prune(now)
	kept := make([]*x509.Certificate, 0, len(s.dropped))
	for _, d := range s.dropped {
		kept = append(kept, d.cert)
	}
	return s.current().Union(pki.NewBundle(kept...)).Filter(func(c *x509.Certificate) bool {
		return c.NotAfter.After(now.Wall)
	})
}

// clone returns a copy for a trial change.
func (s *rootSet) clone() *rootSet {
	c := *s
	c.dropped = maps.Clone(s.dropped)
	return &c
}

// next returns the first time after now at which served changes by itself, or the zero
// time.
func (s *rootSet) next(now time.Time) time.Time {
	var first time.Time
	consider := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, d := range s.dropped {
		consider(d.until)
		consider(d.cert.NotAfter)
	}
	for _, cert := range s.current().Certificates() {
		consider(cert.NotAfter)
	}
	return first
}
