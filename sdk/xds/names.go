package xds

// add returns the entry for name and whether it is new. A new entry is looked up only
// after changed is called for it, because its watch must be set first.
func (s *subscription) add(name string) (*entry, bool) {
	if e := s.entries[name]; e != nil {
		return e, false
	}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	e := &entry{name: name}
	if _, gone := s.gone[name]; gone {
		delete(s.gone, name) // the client may still have it: resend it or report it gone
		e.known, e.again = "some", true
	}
	s.entries[name] = e
	return e, true
}

// take subscribes to a name on request. A name the wildcard already covers is sent
// again, since a client expects a response for each name it requests.
func (s *subscription) take(name string, st *step) *entry {
	e, isNew := s.add(name)
	claimed := s.claim(e)
	switch {
	case isNew:
		st.added = append(st.added, e)
	case claimed:
		s.repeat(e)
		st.woken = true
	}
	return e
}

// claim records that the client named e and reports whether that is new.
func (s *subscription) claim(e *entry) bool {
	if e.named {
		return false
	}
	e.named = true
	s.asked++
	return true
}

// disclaim records that the client no longer names e. It reports whether e stays
// because the wildcard covers it. What a client of complete answers has stays until the list
// is there, which may have it: an answer without it would delete it.
func (s *subscription) disclaim(e *entry) bool {
	e.named = false
	s.asked--
	e.listed = e.listed || s.unlisted() && s.policy.complete && e.has()
	if !e.listed {
		s.drop(e)
	}
	return e.listed
}

// drop removes a name. If it is added again, it counts as new and is resent.
func (s *subscription) drop(e *entry) {
	s.dropRefused(e)
	e.dropped = true
	delete(s.entries, e.name)
	delete(s.providers, e.name)
}
