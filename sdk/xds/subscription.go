package xds

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"
)

// maxResponse bounds the bytes of resources in one response: gRPC clients refuse
// more than 4 MiB by default. What does not fit follows in the next response.
const maxResponse = 2 << 20

// entry is one name on a stream.
type entry struct {
	name string
	// stop ends the watch. It belongs to the stream's receiving goroutine.
	stop func()

	sent   *Resource // what the client was sent last; nil for nothing
	seq    uint64    // the response that it was sent with
	sentAt time.Time
	dirty  bool      // the source is to be asked again
	until  time.Time // held back until then at most; zero when not held
	mark   uint64    // the request that listed it last
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
	version   string // of the response as a whole
	refused   []string
	size      int
	full      bool // something did not fit
}

// subscription is what one stream has of one type: which names, what was sent of
// each and what is to be looked at again. It has no clock and no I/O, and both
// dialects of the protocol (state of the world, delta) stand on it.
type subscription struct {
	hold      time.Duration
	entries   map[string]*entry
	providers map[string]*entry // those whose sent resource provides tags
	dirty     []string          // in the order of the changes; may name what was dropped since
	held      []string
	release   time.Time // when the first of held may go; zero for none
	acked     uint64    // the last response that was acknowledged
	nacked    uint64    // the last response that was refused
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
	if e := s.entries[name]; e != nil && !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, name)
	}
}

// resend has name sent again even if its content did not change.
func (s *subscription) resend(e *entry) {
	e.sent = nil
	delete(s.providers, e.name)
	s.changed(e.name)
}

// due returns the names to look up now and takes them off the list. Only names
// that changed are looked at, however many the stream holds.
func (s *subscription) due(now time.Time) []string {
	if !s.release.IsZero() && !now.Before(s.release) {
		s.unhold()
	}
	names, needing := s.dirty[:0], false
	for _, name := range s.dirty {
		e := s.entries[name]
		if e == nil || !e.dirty {
			continue // dropped, or listed twice because it was dropped and taken again
		}
		e.dirty = false
		names = append(names, name)
		needing = needing || e.sent != nil && e.sent.Needs != ""
	}
	s.dirty = nil
	if needing {
		// The provider's own notice may come after the one of what needs it.
		names = slices.AppendSeq(names, maps.Keys(s.providers))
	}
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
		case errors.Is(f.err, ErrUnknown):
			b.refused = append(b.refused, f.name)
		case f.err != nil: // not ready
		case e.sent != nil && e.sent.Version == f.resource.Version: // unchanged
			e.until = time.Time{}
		case e.sent != nil && f.resource.Needs != "":
			needing = append(needing, f)
		default:
			s.send(&b, e, f.resource, seq, now)
		}
	}
	for _, f := range needing {
		e := s.entries[f.name]
		switch {
		case b.full: // a provider may be among what did not fit
			s.changed(f.name)
		case !s.holds(e, f.resource.Needs, now):
			s.send(&b, e, f.resource, seq, now)
		}
	}
	return b
}

// send puts r into b, or back on the list where b is full.
func (s *subscription) send(b *batch, e *entry, r *Resource, seq uint64, now time.Time) {
	if b.size > 0 && b.size+len(r.Body.GetValue()) > maxResponse {
		b.full = true
		s.changed(e.name)
		return
	}
	b.size += len(r.Body.GetValue())
	b.resources = append(b.resources, r)
	e.sent, e.seq, e.sentAt, e.until = r, seq, now, time.Time{}
	delete(s.providers, e.name)
	if len(r.Provides) > 0 {
		if s.providers == nil {
			s.providers = map[string]*entry{}
		}
		s.providers[e.name] = e
	}
}

// holds keeps e back if what provides tag is on its way, and tells whether it did.
func (s *subscription) holds(e *entry, tag string, now time.Time) bool {
	until := s.provided(tag)
	// The first bound stands: providers that change again and again must not
	// starve what needs them.
	if e.until.IsZero() {
		e.until = until
	}
	if until.IsZero() || !now.Before(e.until) {
		return false
	}
	s.held = append(s.held, e.name)
	if s.release.IsZero() || e.until.Before(s.release) {
		s.release = e.until
	}
	return true
}

// provided returns until when tag is on its way to the client: zero if the client
// acknowledged a provider of it, or if the stream has none.
func (s *subscription) provided(tag string) (until time.Time) {
	for _, p := range s.providers {
		if !slices.Contains(p.sent.Provides, tag) {
			continue
		}
		if p.seq <= s.acked && p.seq != s.nacked {
			return time.Time{}
		}
		if t := p.sentAt.Add(s.hold); t.After(until) {
			until = t
		}
	}
	return until
}

// ack takes the acknowledgement of response seq and of those before it; it tells
// whether that is news.
func (s *subscription) ack(seq uint64) bool {
	if seq <= s.acked {
		return false
	}
	s.acked = seq
	s.unhold()
	return true
}

// nack takes the refusal of response seq; it tells whether that is news.
func (s *subscription) nack(seq uint64) bool {
	news := s.nacked != seq
	s.nacked = seq
	return news
}

// unhold has all that was held looked at again.
func (s *subscription) unhold() {
	held := s.held
	s.held, s.release = nil, time.Time{}
	for _, name := range held {
		s.changed(name)
	}
}

// all yields the entries.
func (s *subscription) all() iter.Seq[*entry] { return maps.Values(s.entries) }
