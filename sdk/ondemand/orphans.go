package ondemand

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// sweepEvery is how often records are deleted whose certificates have ended: each is kept for as long
// as that at least, by the monotonic clock, and for twice as long at most. A clock that is far ahead
// shows all certificates as ended, until it is set.
const sweepEvery = 12 * time.Hour

// orphan is a name in Storage without an entry: no rule matches it, or its certificate has ended.
type orphan struct {
	secret.Entry
	ended bool // at the last sweep
}

func (o orphan) over(now time.Time) bool { return !o.Ends.IsZero() && !now.Before(o.Ends) }

// adopt makes entries of stored names that a rule matches.
func (s *Set) adopt() {
	for name := range s.orphans {
		if r := s.match(name); r != nil {
			s.claim(name, r, s.sched.Now())
		}
	}
}

// claim makes an orphan an entry of the rule that matches it. If its certificate has ended, it is
// left as it is: a name that is asked for is a new one.
func (s *Set) claim(name string, r *rule, now time.Time) {
	kept, ok := s.orphans[name]
	if !ok || kept.over(now) || s.names[name] != nil {
		return
	}
	delete(s.orphans, name)
	s.keep(name, r, kept.Entry, now)
}

// abandon makes an orphan of an entry that is dropped. A record that is of no use any more is
// deleted.
func (s *Set) abandon(e *entry) {
	last, held := e.Rotation.Held()
	kept := orphan{Entry: secret.Entry{Name: e.name, Renew: last.Renew, Ends: last.Ends}}
	if held && kept.over(s.sched.Now()) {
		s.orphans[e.name] = kept
		return
	}
	if !held { // the record has an order, or the certificate of another machine
		e.known = term{}
	}
	s.discard(e.name, e.known)
}

// sweep deletes the records of certificates that have ended at the last sweep already, unless there is
// an entry that replaces them.
func (s *Set) sweep(now time.Time) {
	if time.Since(s.swept) < sweepEvery {
		return
	}
	s.swept = time.Now()
	for name, kept := range s.orphans {
		ended := kept.over(now)
		if ended && kept.ended && s.names[name] == nil {
			if s.shared == nil { // its deletion is a change, and may have to wait for the storage's clock
				delete(s.orphans, name)
			}
			s.discard(name, termOf(kept.Entry))
			continue
		}
		kept.ended = ended
		s.orphans[name] = kept
	}
}
