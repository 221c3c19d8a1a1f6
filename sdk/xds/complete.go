package xds

import "errors"

// withheld keeps back an answer that would delete what the client may hold although it
// is only not ready, and tells whether it did. Nothing of found is entered then: all is
// looked up again with the next change.
func (s *subscription) withheld(found []lookup) bool {
	if !s.policy.complete {
		return false
	}
	unlisted := s.wild != nil && !s.wild.ready
	s.parked = unlisted || s.seq == 0 && s.brought && s.settled(found) < len(s.entries)
	return s.parked
}

// settled returns of how many of the names it is known what there is.
func (s *subscription) settled(found []lookup) (n int) {
	for _, f := range found {
		if s.entries[f.name] != nil && (f.err == nil || errors.Is(f.err, ErrUnknown)) {
			n++
		}
	}
	return n
}

// unpark has everything looked at that an answer was kept back with.
func (s *subscription) unpark() {
	if s.parked {
		s.parked = false
		for _, e := range s.entries {
			s.look(e)
		}
	}
}

// speaks fills in what b says that was not looked up, and tells whether it says anything.
func (s *subscription) speaks(b *batch, looked int) bool {
	if s.policy.removes {
		s.removed(b)
	}
	// What is subscribed to first is answered, if only to say that there is none.
	first := s.policy.complete && s.seq == 0 && looked > 0
	return len(b.resources) > 0 || len(b.removed) > 0 || s.policy.removes && len(b.refused) > 0 || s.owed || first
}

// whole returns the answer with all that the client has once it takes it; nil where
// answers are not complete.
func (s *subscription) whole() *answer {
	if !s.policy.complete {
		return nil
	}
	return s.policy.answers.of(s.entries)
}
