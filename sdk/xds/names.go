package xds

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
	if _, gone := s.gone[name]; gone {
		delete(s.gone, name) // the client may have it still: told anew, or gone
		e.known, e.again = "some", true
	}
	s.entries[name] = e
	return e, true
}

// take subscribes to a name by a request. What the wildcard had is sent again: a client
// expects what it names.
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

// claim enters that the client named e, and tells whether it did not before.
func (s *subscription) claim(e *entry) bool {
	if e.named {
		return false
	}
	e.named = true
	s.asked++
	return true
}

// disclaim enters that the client names e no longer. It tells whether e stays, as the
// wildcard has it.
func (s *subscription) disclaim(e *entry) bool {
	e.named = false
	s.asked--
	if !e.listed {
		s.drop(e)
	}
	return e.listed
}

// drop forgets a name; taken again, it is new and sent again.
func (s *subscription) drop(e *entry) {
	e.dropped = true
	delete(s.entries, e.name)
	delete(s.providers, e.name)
}
