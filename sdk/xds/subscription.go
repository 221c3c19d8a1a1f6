package xds

import (
	"errors"
	"time"
)

// maxResponse bounds the bytes of resources and names in one response: gRPC clients
// refuse more than 4 MiB by default. What does not fit follows in the next response.
const maxResponse = 2 << 20

// entry is one name on a stream.
type entry struct {
	name string
	// stop ends the watch. It is for whoever drops the entry to call.
	stop func()

	known   string    // the version that the client brought from an earlier stream
	sent    *Resource // what the client was sent last; nil for nothing
	seq     uint64    // the response that it was sent with
	sentAt  time.Time
	nacked  bool      // that response was refused
	refused bool      // unknown, and told
	dirty   bool      // the source is to be asked again
	held    bool      // on the list of held names
	until   time.Time // held back until then at most; zero when not held
	named   bool      // the client named it
	listed  bool      // the wildcard has it
	again   bool      // is to be sent even if it is unchanged
	dropped bool      // no longer on the stream: a watch that comes late is to be stopped
	mark    uint64    // the request or list that had it last
}

// lookup is what the source answered for one name.
type lookup struct {
	name     string
	resource *Resource
	err      error
}

// batch is what a round of lookups came to.
type batch struct {
	resources []*Resource // that the client does not have
	whole     *answer     // with what it has, where an answer is complete; else nil
	refused   []string    // unknown, and not told before
	removed   []string    // gone
	version   string      // of the response as a whole
	size      int
	full      bool // something did not fit
}

// subscription is what one stream has of one type: which names, what was sent of
// each and what is to be looked at again. It has no clock and no I/O, and both
// dialects of the protocol (state of the world, delta) stand on it.
type subscription struct {
	policy    *policy
	entries   map[string]*entry
	providers map[string]*entry // those whose sent resource provides tags
	dirty     []*entry          // in the order of the changes; may hold what was dropped since
	held      []*entry
	release   time.Time // when the first of held may go; zero for none

	wild     *wildcard           // nil where the stream is not subscribed to it
	asked    int                 // how many entries the client named
	gone     map[string]struct{} // that the client is to be told of
	explicit bool                // the client named something once
	owed     bool                // an answer is due whatever changed
	brought  bool                // the client has something from an earlier stream
	parked   bool                // an answer was kept back

	begun   bool   // a request was there
	seq     uint64 // the last response; zero before the first
	version string // of it
	acked   uint64 // the last response that was acknowledged
	nacked  uint64 // the last response that was refused
}

// changed marks a name for another look. Names that the stream does not hold are
// ignored: a notice may come late.
func (s *subscription) changed(name string) {
	if e := s.entries[name]; e != nil {
		s.look(e)
	}
}

func (s *subscription) look(e *entry) {
	if e.dirty {
		return
	}
	e.dirty = true
	s.dirty = append(s.swept(s.dirty), e)
}

// swept returns the list without what was dropped, once that may be half of it:
// a client that takes and drops names but reads nothing must not make it grow.
func (s *subscription) swept(list []*entry) []*entry {
	if len(list) < 2*len(s.entries)+16 {
		return list
	}
	kept := make([]*entry, 0, len(s.entries)+16)
	for _, e := range list {
		if s.entries[e.name] == e {
			kept = append(kept, e)
		}
	}
	return kept
}

// repeat has what the client has sent again even if nothing changed. Until it can be, the
// client has it all the same.
func (s *subscription) repeat(e *entry) {
	e.again = true
	s.look(e)
}

// resend has a name told again, to a client that may have forgotten it.
func (s *subscription) resend(e *entry) {
	s.forget(e)
	e.refused = false
	s.look(e)
}

// due returns the names to look up now and takes them off the list. Only names
// that changed are looked at, however many the stream holds. There may be something to
// say without any.
func (s *subscription) due(now time.Time) (names []string, ok bool) {
	if !s.release.IsZero() && !now.Before(s.release) {
		s.unhold()
	}
	if s.needing() {
		// The provider's own notice may come after the one of what needs it.
		for _, p := range s.providers {
			s.look(p)
		}
	}
	if len(s.dirty) > 0 {
		s.unpark()
	}
	for _, e := range s.dirty {
		if s.entries[e.name] == e { // else it was dropped
			e.dirty = false
			names = append(names, e.name)
		}
	}
	s.dirty = nil
	return names, len(names) > 0 || !s.parked && (s.owed || s.telling())
}

// choose takes the answers of the source and returns what goes out now, as
// response seq. What needs an unacknowledged provider is held.
func (s *subscription) choose(found []lookup, seq uint64, now time.Time) batch {
	var b batch
	var needing []lookup
	for _, f := range found {
		e := s.entries[f.name]
		switch {
		case e == nil: // dropped while it was looked up
		case f.err != nil:
			e.until = time.Time{}
			if errors.Is(f.err, ErrUnknown) {
				s.refuse(&b, e)
			}
		case s.unchanged(e, f.resource):
			e.until, e.refused = time.Time{}, false
		case f.resource.Needs != "" && e.has():
			needing = append(needing, f)
		default:
			s.send(&b, e, f.resource, seq, now)
		}
	}
	for _, f := range needing {
		e := s.entries[f.name]
		switch {
		case b.full: // a provider may be among what did not fit
			s.look(e)
		case !s.holds(e, f.resource.Needs, now):
			s.send(&b, e, f.resource, seq, now)
		}
	}
	return b
}

// has tells whether the client has a version of the resource.
func (e *entry) has() bool { return e.sent != nil || e.known != "" }

// unchanged tells whether the client has r already.
func (s *subscription) unchanged(e *entry, r *Resource) bool {
	if e.again {
		return false
	}
	if e.sent == nil && e.known != "" && e.known == r.Version {
		s.record(e, r, 0, time.Time{}) // brought from an earlier stream: as good as acknowledged
	}
	return e.sent != nil && e.sent.Version == r.Version
}

// send puts r into b, if it fits.
func (s *subscription) send(b *batch, e *entry, r *Resource, seq uint64, now time.Time) {
	if s.fits(b, e, len(r.Name)+len(r.Version)+len(r.Body.GetTypeUrl())+len(r.Body.GetValue())) {
		b.resources = append(b.resources, r)
		s.record(e, r, seq, now)
	}
}

// refuse puts the name of e into b, if that was not told and fits. A client that did not
// name it is told only that it is gone.
func (s *subscription) refuse(b *batch, e *entry) {
	if e.has() && (s.policy.complete || s.policy.removes && !e.named) {
		s.lose(e.name)
		s.forget(e)
	}
	if e.named && !e.refused && s.fits(b, e, len(e.name)) {
		b.refused = append(b.refused, e.name)
		e.refused = true
	}
}

// fits takes size bytes of b for e; where b is full, e is back on the list.
func (s *subscription) fits(b *batch, e *entry, size int) bool {
	if b.size > 0 && b.size+size > maxResponse && !s.policy.complete {
		b.full = true
		s.look(e)
		return false
	}
	b.size += size
	return true
}

// record enters that the client has r, by response seq.
func (s *subscription) record(e *entry, r *Resource, seq uint64, now time.Time) {
	e.sent, e.seq, e.sentAt, e.until = r, seq, now, time.Time{}
	e.known, e.nacked, e.refused, e.again = "", false, false, false
	delete(s.providers, e.name)
	if len(r.Provides) > 0 {
		if s.providers == nil {
			s.providers = map[string]*entry{}
		}
		s.providers[e.name] = e
	}
}

// forget enters that the client has no version of e any more.
func (s *subscription) forget(e *entry) {
	e.sent, e.known = nil, ""
	delete(s.providers, e.name)
}
