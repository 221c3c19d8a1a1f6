package xds

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"
)

// maxResponse bounds the bytes of resources and names in one response: gRPC clients
// refuse more than 4 MiB by default. What does not fit follows in the next response.
const maxResponse = 2 << 20

// entry is one name on a stream.
type entry struct {
	name string
	// stop ends the watch. It belongs to the stream's receiving goroutine.
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
	mark    uint64    // the request that listed it last
}

// lookup is what the source answered for one name.
type lookup struct {
	name     string
	resource *Resource
	err      error
}

// batch is what a round of lookups came to.
type batch struct {
	resources []*Resource
	refused   []string // unknown, and not told before
	version   string   // of the response as a whole
	size      int
	full      bool // something did not fit
}

// subscription is what one stream has of one type: which names, what was sent of
// each and what is to be looked at again. It has no clock and no I/O, and both
// dialects of the protocol (state of the world, delta) stand on it.
type subscription struct {
	url       string
	hold      time.Duration
	entries   map[string]*entry
	providers map[string]*entry // those whose sent resource provides tags
	dirty     []*entry          // in the order of the changes; may hold what was dropped since
	held      []*entry
	release   time.Time // when the first of held may go; zero for none

	begun   bool   // a request was there
	seq     uint64 // the last response; zero before the first
	version string // of it
	acked   uint64 // the last response that was acknowledged
	nacked  uint64 // the last response that was refused
}

// add returns the entry for name and whether it is new. A new entry is not looked
// up before changed is called for it: the watch must stand first.
func (s *subscription) add(name string) (*entry, bool) {
	if e := s.entries[name]; e != nil {
		return e, false
	}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	e := &entry{name: name}
	s.entries[name] = e
	return e, true
}

// drop forgets a name; taken again, it is new and sent again.
func (s *subscription) drop(name string) {
	delete(s.entries, name)
	delete(s.providers, name)
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

// resend has a name told again even if nothing changed.
func (s *subscription) resend(e *entry) {
	s.forget(e)
	e.refused = false
	s.look(e)
}

// due returns the names to look up now and takes them off the list. Only names
// that changed are looked at, however many the stream holds.
func (s *subscription) due(now time.Time) []string {
	if !s.release.IsZero() && !now.Before(s.release) {
		s.unhold()
	}
	if s.needing() {
		// The provider's own notice may come after the one of what needs it.
		for _, p := range s.providers {
			s.look(p)
		}
	}
	var names []string
	for _, e := range s.dirty {
		if s.entries[e.name] == e { // else it was dropped
			e.dirty = false
			names = append(names, e.name)
		}
	}
	s.dirty = nil
	return names
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

// refuse puts the name of e into b, if that was not told and fits.
func (s *subscription) refuse(b *batch, e *entry) {
	if !e.refused && s.fits(b, e, len(e.name)) {
		b.refused = append(b.refused, e.name)
		e.refused = true
	}
}

// fits takes size bytes of b for e; where b is full, e is back on the list.
func (s *subscription) fits(b *batch, e *entry, size int) bool {
	if b.size > 0 && b.size+size > maxResponse {
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
	e.known, e.nacked, e.refused = "", false, false
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

// ack takes the acknowledgement of response seq and of those before it; it tells
// whether that is news. What was refused is not acknowledged afterwards.
func (s *subscription) ack(seq uint64) bool {
	if seq <= s.acked || seq == s.nacked {
		return false
	}
	s.acked = seq
	s.unhold()
	return true
}

// nack takes the refusal of response seq; it tells whether that is news, and which
// names the response had that were not sent again since.
func (s *subscription) nack(seq uint64) (names []string, news bool) {
	if seq <= s.nacked || seq <= s.acked {
		return nil, false
	}
	s.nacked = seq
	for name, e := range s.entries {
		if e.sent != nil && e.seq == seq {
			e.nacked = true
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// all yields the entries.
func (s *subscription) all() iter.Seq[*entry] { return maps.Values(s.entries) }
