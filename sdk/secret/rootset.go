package secret

import (
	"crypto/x509"
	"maps"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxDropped bounds the dropped roots that are kept, however often an authority
// changes its mind.
const maxDropped = 100

// rootSet is what one authority has said about its roots. It knows no clock and
// no goroutines: whoever owns it says what time it is.
type rootSet struct {
	told    *pki.Bundle // the last word of a RootSource or RootWatcher
	changed time.Time   // when told last became another set
	replied *pki.Bundle // the roots of the last reply, where newer than told
	dropped map[string]droppedRoot
}

// droppedRoot is a root that the authority no longer names and that stays until
// the certificates under it have ended.
type droppedRoot struct {
	cert  *x509.Certificate
	until time.Time
	// restored: it is from the last run, and the authority has said nothing yet. Until
	// then nobody knows whether it was dropped.
	restored bool
}

func (s *rootSet) current() *pki.Bundle { return s.told.Union(s.replied) }

// tell takes the whole set of roots as of now. The replies before are outdated;
// roots that are gone stay until the time that until returns.
func (s *rootSet) tell(roots *pki.Bundle, now time.Time, until func() time.Time) {
	if roots.Equal(s.told) {
		return // nothing new, and no reason to doubt the replies since
	}
	s.heard(until)
	before := s.current()
	s.told, s.replied, s.changed = roots, nil, now
	s.drop(before, until)
}

// reply takes the roots of a reply to a request that was sent at asked. They are
// added to what was told: many authorities name only the root of that one chain.
// Where nothing is ever told, they are the whole set.
//
// An answer that was on its way while a new set was told may be from before: its
// roots are taken like dropped ones.
func (s *rootSet) reply(roots *pki.Bundle, asked time.Time, until func() time.Time) {
	if roots.Len() == 0 {
		return
	}
	s.heard(until)
	if s.told != nil && asked.Before(s.changed) {
		s.drop(roots, until)
		return
	}
	before := s.current()
	s.replied = roots
	s.drop(before, until)
}

// drop keeps those of the roots that are not current.
func (s *rootSet) drop(roots *pki.Bundle, until func() time.Time) {
	current := s.current()
	for _, cert := range roots.Certificates() {
		if !current.Contains(cert) {
			s.keep(pki.Fingerprint(cert), droppedRoot{cert: cert, until: until()})
		}
	}
	maps.DeleteFunc(s.dropped, func(_ string, d droppedRoot) bool { return current.Contains(d.cert) })
}

// restore takes a root of the last run; there are only as many as were served.
func (s *rootSet) restore(d droppedRoot) {
	if s.dropped == nil {
		s.dropped = make(map[string]droppedRoot)
	}
	s.dropped[pki.Fingerprint(d.cert)] = d
}

// heard ends the special case of the roots of the last run: those that are not told now
// are dropped ones like any other, and none stays longer than its record says.
func (s *rootSet) heard(until func() time.Time) {
	for print, d := range s.dropped {
		if d.restored {
			s.dropped[print] = droppedRoot{cert: d.cert, until: earlier(d.until, until())}
		}
	}
}

func (s *rootSet) keep(print string, d droppedRoot) {
	if s.dropped == nil {
		s.dropped = make(map[string]droppedRoot)
	}
	old, known := s.dropped[print]
	if known && old.until.After(d.until) || !known && len(s.dropped) >= maxDropped {
		return
	}
	s.dropped[print] = d
}

// served returns the roots to serve at now: no root outlives itself.
func (s *rootSet) served(now time.Time) *pki.Bundle {
	maps.DeleteFunc(s.dropped, func(_ string, d droppedRoot) bool { return !d.until.After(now) })
	kept := make([]*x509.Certificate, 0, len(s.dropped))
	for _, d := range s.dropped {
		kept = append(kept, d.cert)
	}
	return s.current().Union(pki.NewBundle(kept...)).Filter(func(c *x509.Certificate) bool {
		return c.NotAfter.After(now)
	})
}

// clone returns a copy that can be tried out.
func (s *rootSet) clone() *rootSet {
	c := *s
	c.dropped = maps.Clone(s.dropped)
	return &c
}

// next returns the first moment after now at which served changes by itself, or
// the zero time.
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
