package xds

import "errors"

// withheld reports whether the answer must wait because it would delete a resource that
// the client may hold and that is merely not ready. It then records nothing from found;
// the next change looks everything up again.
func (s *subscription) withheld(found []lookup) bool {
	if !s.policy.complete {
		return false
	}
	s.parked = s.unlisted() || s.seq == 0 && s.brought && s.settled(found) < len(s.entries)
	return s.parked
}

// settled counts the names whose state is known: a resource, or that there is none.
func (s *subscription) settled(found []lookup) (n int) {
	for _, f := range found {
		if s.entries[f.name] != nil && (f.err == nil || errors.Is(f.err, ErrUnknown)) {
			n++
		}
	}
	return n
}

// unpark schedules another lookup of everything in the withheld answer.
func (s *subscription) unpark() {
	if s.parked {
		s.parked = false
		for _, e := range s.entries {
			s.look(e)
		}
	}
}

// speaks fills in the parts of b that need no lookup and reports whether b has content.
func (s *subscription) speaks(b *batch, looked int) bool {
	if s.policy.removes {
		s.removed(b)
	}
	// A first subscription gets an answer even if it is empty.
	first := s.policy.complete && s.seq == 0 && looked > 0
	return len(b.resources) > 0 || len(b.removed) > 0 || s.policy.removes && len(b.refused) > 0 || s.owed || first
}

// whole returns the answer with everything the client will have once it accepts it, or
// nil if the type is not complete.
func (s *subscription) whole() *answer {
	if !s.policy.complete {
		return nil
	}
	return s.policy.answers.of(s.entries)
}
