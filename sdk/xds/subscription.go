package xds

import (
	"errors"
	"time"
)

// maxResponse limits the bytes of resources and names in one response: gRPC clients
// reject more than 4 MiB by default. The rest follows in the next response.
const maxResponse = 2 << 20

// entry is one name on a stream.
type entry struct {
	name string
	// stop ends the watch. The goroutine that drops the entry calls it.
	stop func()

	known        string    // the version the client brought from an earlier stream
	sent         *Resource // what the client was sent last; nil for nothing
	seq          uint64    // the response that carried it
	sentAt       time.Time
	until        time.Time // deadline of the hold; zero when not held
	mark         uint64    // the last request or list that contained it
	nacked       bool      // the client rejected that response
	doubtful     bool      // nothing is sent, and the client may have rejected what was before
	alone        bool      // that response held nothing else
	tries        uint8     // how often the trial has sent this content again
	refusedAlone bool      // both: this content is what the client refuses
	queued       bool      // the trial will send it again
	apart        bool      // the trial will send it by itself
	refused      bool      // unknown, and the client got the removal
	dirty        bool      // the source must be queried again
	held         bool      // on the list of held names
	named        bool      // the client named it
	listed       bool      // the wildcard covers it
	again        bool      // must be resent even if unchanged
	dropped      bool      // no longer on the stream: a watch that comes late must be stopped
}

// lookup is the source's answer for one name.
type lookup struct {
	name          string
	resource      *Resource
	err           error
	refusedBefore bool // the caller's client refused this content before
}

// batch is the result of a round of lookups.
type batch struct {
	resources []*Resource // new to the client
	whole     *answer     // everything, if an answer is complete; else nil
	refused   []string    // unknown, and not reported before
	removed   []string    // gone
	version   string      // of the response as a whole
	size      int
	full      bool // something did not fit
}

// subscription is the state of one type on one stream: the names, what was sent for
// each and what to look up again. It has no clock and does no I/O; both dialects (state
// of the world, delta) build on it.
type subscription struct {
	policy    *policy
	entries   map[string]*entry
	providers map[string]*entry // entries whose sent resource provides tags
	dirty     []*entry          // in order of change; may contain dropped entries
	held      []*entry
	release   time.Time // when the first held entry may go; zero for none
	trial     *trial    // nil until the client refuses something

	wild     *wildcard           // nil if the stream has no wildcard subscription
	asked    int                 // number of entries the client named
	gone     map[string]struct{} // removals to report to the client
	explicit bool                // the client has named something before
	owed     bool                // an answer is due whatever changed
	brought  bool                // the client has state from an earlier stream
	parked   bool                // an answer was withheld

	begun   bool   // a request was received
	seq     uint64 // the last response; zero before the first
	version string // of it
	acked   uint64 // the last acknowledged response
	nacked  uint64 // the last rejected response
}

// changed marks a name for another lookup. Names that are not on the stream are
// ignored: a notification may come late.
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

// swept returns list without dropped entries once they may make up half of it: a client
// that adds and drops names without reading must not make it grow.
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

// repeat schedules a resend of what the client has, even if nothing changed. Until then
// the client still counts as having it.
func (s *subscription) repeat(e *entry) {
	e.again = true
	s.look(e)
}

// resend reports a name again to a client that may have forgotten it. It may as well have it
// still, so it gets a removal if the resource goes instead. A complete answer would be the
// removal, so there the client counts as having it until then.
func (s *subscription) resend(e *entry) {
	if s.policy.complete {
		s.repeat(e)
		return
	}
	had := e.has()
	s.forget(e)
	if had {
		e.known, e.again = "some", true
	}
	e.refused = false
	s.look(e)
}

// due returns the names to look up now and clears the list. It visits only changed
// names, however many the stream holds. An answer can be due without any name.
func (s *subscription) due(now time.Time) (names []string, ok bool) {
	if !s.release.IsZero() && !now.Before(s.release) {
		s.unhold()
	}
	if s.needing() {
		// The provider's own notification may arrive after that of its dependents.
		for _, p := range s.providers {
			s.look(p)
		}
	}
	if len(s.dirty) > 0 {
		s.unpark()
	}
	for _, e := range s.dirty {
		if s.entries[e.name] == e { // otherwise it was dropped
			e.dirty = false
			names = append(names, e.name)
		}
	}
	s.dirty = nil
	return names, len(names) > 0 || !s.parked && (s.owed || s.telling())
}

// choose applies the source's answers and returns what goes out now as response seq.
// Resources whose provider is unacknowledged are held.
func (s *subscription) choose(found []lookup, seq uint64, now time.Time) batch {
	var b batch
	var needing []lookup
	for _, f := range found {
		e := s.entries[f.name]
		switch {
		case e == nil: // dropped during the lookup
		case s.outdated(e, f):
			s.look(e)
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
			s.send(&b, e, f, seq, now)
		}
	}
	for _, f := range needing {
		e := s.entries[f.name]
		switch {
		case b.full: // a provider may be among what did not fit
			s.look(e)
		case !s.holds(e, f.resource.Needs, now):
			s.send(&b, e, f, seq, now)
		}
	}
	if len(b.resources) == 1 {
		s.entries[b.resources[0].Name].alone = true
	}
	s.tried(seq)
	return b
}

// has reports whether the client has any version of the resource.
func (e *entry) has() bool { return e.sent != nil || e.known != "" }

// unchanged reports whether the client already has r.
func (s *subscription) unchanged(e *entry, r *Resource) bool {
	if e.again {
		return false
	}
	if e.sent == nil && e.known != "" && e.known == r.Version {
		s.record(e, r, 0, time.Time{}) // brought from an earlier stream: as good as acknowledged
	}
	return e.sent != nil && e.sent.Version == r.Version
}

// send adds what was found for e to b if it fits.
func (s *subscription) send(b *batch, e *entry, f lookup, seq uint64, now time.Time) {
	r := f.resource
	if f.refusedBefore && s.separates(r) {
		s.part(e, r)
		return
	}
	if s.fits(b, e, len(r.Name)+len(r.Version)+len(r.Body.GetTypeUrl())+len(r.Body.GetValue())) {
		b.resources = append(b.resources, s.worded(e, r, f.refusedBefore))
		s.record(e, r, seq, now)
	}
}

// refuse adds the name of e to b if that was not reported yet and fits. A client that
// did not name it learns only that it is gone.
func (s *subscription) refuse(b *batch, e *entry) {
	s.dropRefused(e)
	if e.has() && (s.policy.complete || s.policy.removes && !e.named) {
		s.lose(e.name)
		s.forget(e)
	}
	if e.named && !e.refused && s.fits(b, e, len(e.name)) {
		b.refused = append(b.refused, e.name)
		e.refused = true
	}
}

// fits reserves size bytes of b for e; if b is full, e goes back on the list.
func (s *subscription) fits(b *batch, e *entry, size int) bool {
	if b.size > 0 && b.size+size > maxResponse && !s.policy.complete {
		b.full = true
		s.look(e)
		return false
	}
	b.size += size
	return true
}

// record records that response seq gave the client r.
func (s *subscription) record(e *entry, r *Resource, seq uint64, now time.Time) {
	s.clearRefused(e)
	e.sent, e.seq, e.sentAt, e.until = s.kept(r), seq, now, time.Time{}
	e.known, e.nacked, e.doubtful, e.alone, e.refused, e.again = "", false, false, false, false, false
	delete(s.providers, e.name)
	if len(r.Provides) > 0 {
		if s.providers == nil {
			s.providers = map[string]*entry{}
		}
		s.providers[e.name] = e
	}
}

// kept returns what to keep of a resource that was sent. Complete responses repeat it.
func (s *subscription) kept(r *Resource) *Resource {
	if r.Kept == nil || s.policy.complete {
		return r
	}
	return r.Kept
}

// forget records that the client no longer has any version of e.
func (s *subscription) forget(e *entry) {
	s.clearRefused(e)
	e.doubtful = e.doubtful || e.sent != nil && (e.nacked || e.seq > s.acked)
	e.sent, e.known = nil, ""
	delete(s.providers, e.name)
}
