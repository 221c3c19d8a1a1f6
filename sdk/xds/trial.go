package xds

import (
	"math/rand/v2"
	"time"
)

// maxGuesses is how many resources may be found at fault before the client has accepted
// anything; from then on it counts as a client that refuses everything.
const maxGuesses = 8

// trial finds the resources because of which a client refuses a response: an Envoy that
// cannot load one secret refuses all that came with it. What was refused together is sent
// again in halves, one response at a time, until a refused response holds a single resource.
// That one stays refused until its content changes, and all others are delivered. One of n
// resources is found with about log2(n) responses. A subscription has a trial only once its
// client has refused something.
type trial struct {
	seq     uint64   // the response that is being tried; zero for none
	next    bool     // the next response is the one to try
	needs   bool     // a resource that is or was to be tried needs another
	now     []*entry // what it holds or will hold
	bad     []*entry // refused together with now: where now is accepted, one of these is at fault
	rest    []*entry // refused with others and not tried since
	apart   []*entry // found at fault on an earlier stream: each is sent by itself
	found   int      // resources found at fault since the client last accepted something
	stuck   int      // resources at fault that were not replaced yet
	cleared bool     // one of them is gone, which was not reported yet
}

// isolate records that the client refused response seq, with these resources. It returns the
// resource at fault if that is known.
func (s *subscription) isolate(seq uint64, refused []*entry) *Resource {
	if s.policy.apart {
		return nil // and what a complete response omits is deleted
	}
	if s.trial == nil {
		s.trial = &trial{}
	}
	t := s.trial
	switch {
	case t.seq == seq:
		s.settle()
		t.rest, t.bad = append(t.rest, t.bad...), nil
	case t.seq != 0 && t.seq < seq:
		s.accepted() // answers come in order
	}
	if len(refused) == 1 && refused[0].alone {
		s.markRefused(refused[0])
		return refused[0].sent
	}
	s.retry(refused)
	return nil
}

// retry schedules a try of entries that were refused together.
func (s *subscription) retry(refused []*entry) {
	t := s.trial
	fresh := make([]*entry, 0, len(refused))
	for _, e := range refused {
		if !e.queued {
			e.queued = true
			t.needs = t.needs || e.sent.Needs != ""
			fresh = append(fresh, e)
		}
	}
	if len(t.now) == 0 && len(t.bad) == 0 {
		t.now, t.bad = halves(fresh)
		return
	}
	t.rest = append(s.swept(t.rest), fresh...)
}

// halves splits entries at random, so that the owner of a few of them does not decide which are
// tried first.
func halves(entries []*entry) (first, second []*entry) {
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] }) // #nosec G404 -- no secret
	middle := (len(entries) + 1) / 2
	return entries[:middle], entries[middle:]
}

// markRefused records that the client refused e, which was alone in the response.
func (s *subscription) markRefused(e *entry) {
	t := s.trial
	e.refusedAlone = true
	t.stuck++
	t.found++
}

// refusesAll reports whether trying is useless, as the client has accepted nothing. What was not
// tried yet waits until it accepts something.
func (s *subscription) refusesAll() bool { return s.acked == 0 && s.trial.found >= maxGuesses }

// clearRefused records that the client no longer has to accept the content that it refused.
func (s *subscription) clearRefused(e *entry) {
	if e.refusedAlone {
		e.refusedAlone = false
		s.trial.stuck--
	}
}

// dropRefused records that what the client may have refused is gone, or no longer asked for. The same
// content is tried afresh if it comes back.
func (s *subscription) dropRefused(e *entry) {
	if e.refusedAlone {
		s.clearRefused(e)
		s.trial.cleared, e.again = true, true
	}
}

// cleared reports whether there is news from dropRefused, and how many resources the client still
// refuses by themselves.
func (s *session) cleared(typ int) (left int, news bool) {
	t := s.types[typ].trial
	if t == nil || !t.cleared {
		return 0, false
	}
	t.cleared = false
	return t.stuck, true
}

// accepted records that the client accepted what was tried.
func (s *subscription) accepted() {
	s.settle()
	s.trial.found = 0
}

// settle ends the current try. What was refused meanwhile in another response remains to be
// tried.
func (s *subscription) settle() {
	t := s.trial
	for _, e := range t.now {
		e.queued = e.nacked && e.seq != t.seq
		if e.queued {
			t.rest = append(t.rest, e)
		}
	}
	t.seq, t.now = 0, nil
}

// left returns how many resources the client refuses by themselves.
func (s *subscription) left() int {
	if s.trial == nil {
		return 0
	}
	return s.trial.stuck
}

// tries reports whether the trial has something to send.
func (s *subscription) tries() bool {
	t := s.trial
	return t != nil && t.seq == 0 && !s.refusesAll() && len(t.now)+len(t.bad)+len(t.rest)+len(t.apart) > 0
}

// try returns the names in the next response of the trial; none if there is no such response
// or the client has not answered the last one. Changes that others may need go first.
func (s *subscription) try() (names []string) {
	if len(s.dirty) > 0 && s.trial != nil && s.trial.needs {
		return nil
	}
	for s.tries() && len(names) == 0 {
		t := s.trial
		if len(t.now) == 0 {
			t.advance()
		}
		waiting := t.now[:0:0]
		for _, e := range t.now {
			refusedBefore := e.nacked && !e.refusedAlone // else sent since
			e.queued = !e.dropped && (refusedBefore || len(t.now) == 1)
			if e.queued {
				e.again, t.next = e.again || refusedBefore, true
				waiting, names = append(waiting, e), append(names, e.name)
			}
		}
		t.now = waiting
	}
	return names
}

// advance chooses what to try next, once the last try is over.
func (t *trial) advance() {
	switch {
	case len(t.bad) > 0:
		t.now, t.bad = halves(t.bad)
	case len(t.rest) > 0:
		t.now, t.rest = t.rest, nil
	default:
		t.now, t.apart = t.apart[:1:1], t.apart[1:]
		t.now[0].apart = false
	}
}

// part schedules a response for e alone. Its content made the caller's client refuse a
// response before.
func (s *subscription) part(e *entry, r *Resource) {
	if s.trial == nil {
		s.trial = &trial{}
	}
	t := s.trial
	t.needs = t.needs || r.Needs != ""
	e.until = time.Time{}
	if !e.apart {
		e.apart = true
		t.apart = append(s.swept(t.apart), e)
	}
}

// separates reports whether a resource that was refused before must wait until it can be sent
// by itself. What others need goes first, so it never waits.
func (s *subscription) separates(r *Resource) bool {
	lone := s.trial != nil && s.trial.next && len(s.trial.now) == 1
	return !lone && !s.policy.apart && len(r.Provides) == 0
}

// worded returns r as it is sent for e: content that the client may have refused before differs
// from what it was sent last, else the client may accept it without a look at it. What it was sent
// on an earlier stream is not known.
func (s *subscription) worded(e *entry, r *Resource, refusedBefore bool) *Resource {
	switch {
	case e.doubtful, e.nacked && e.sent != nil && e.sent.Version == r.Version:
	case refusedBefore:
		e.tries = uint8(rand.UintN(128)) // #nosec G115 G404 -- below 128, no secret
	default:
		e.tries = 0
		return r
	}
	e.tries++
	return reworded(r, e.tries)
}

// outdated reports whether the response being chosen is a try, and e has other content than
// what is to be tried: that is sent as any change is.
func (s *subscription) outdated(e *entry, f lookup) bool {
	return s.trial != nil && s.trial.next && f.err == nil && !f.refusedBefore && !(e.nacked && e.sent != nil && e.sent.Version == f.resource.Version)
}

// tried records which of the names to try response seq holds. The others were held back or
// are gone; they follow as any change does.
func (s *subscription) tried(seq uint64) {
	t := s.trial
	if t == nil || !t.next {
		return
	}
	t.next = false
	sent := t.now[:0:0]
	for _, e := range t.now {
		e.queued = e.sent != nil && e.seq == seq
		if e.queued {
			sent = append(sent, e)
		}
	}
	if t.now = sent; len(sent) > 0 {
		t.seq = seq
	}
}
