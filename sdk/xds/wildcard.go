package xds

import "slices"

// star is the name for everything a [Lister] lists.
const star = "*"

// wildcard is a subscription to everything a [Lister] lists. The stream's receiving
// goroutine owns stop.
type wildcard struct {
	stop    func()
	due     bool              // the list must be fetched
	ready   bool              // it was available once
	brought map[string]string // versions the client has from an earlier stream, until the first list
}

// asksForAll reports whether a whole list of names subscribes to the wildcard. An empty
// list does so only until the client has named something: the protocol's legacy form.
func (s *subscription) asksForAll(names []string) bool {
	if len(names) == 0 {
		return s.policy.lists && !s.explicit
	}
	return s.policy.lists && slices.Contains(names, star)
}

// all subscribes to the wildcard. It is listed once the watch is set.
func (s *subscription) all(brought map[string]string, st *step) {
	s.wild = &wildcard{brought: brought}
	st.wild = s.wild
}

// none unsubscribes from the wildcard. Explicitly named resources stay.
func (s *subscription) none(st *step) {
	if s.wild == nil {
		return
	}
	st.unwild, s.wild = s.wild, nil
	s.owed, s.gone = false, nil // the client drops everything it did not name
	for _, e := range s.entries {
		e.listed = false
		if !e.named {
			st.dropped = append(st.dropped, e)
			s.drop(e)
		}
	}
	if s.parked { // named resources waited for the list, which is no longer fetched
		s.unpark()
		st.woken = true
	}
}

// relist schedules another fetch of the list.
func (s *subscription) relist() {
	if s.wild != nil {
		s.wild.due = true
	}
}

// listed applies the list. It returns new entries, to watch and then look up, and
// dropped ones, to stop watching. Nothing is dropped for a list that is not whole.
func (s *subscription) listed(names []string, whole bool, mark uint64) (added, dropped []*entry) {
	w := s.wild
	if w == nil {
		return nil, nil // unsubscribed while the list was fetched
	}
	for _, name := range names {
		e, isNew := s.add(name)
		if version, has := w.brought[name]; has && isNew {
			e.known = version
		}
		if isNew {
			added = append(added, e)
		}
		e.listed, e.mark = true, mark
	}
	if !whole {
		return added, nil
	}
	s.unpark()
	dropped = s.unlist(mark)
	for name := range w.brought {
		if s.entries[name] == nil {
			s.lose(name)
		}
	}
	// A client waiting for its first list gets an empty one, too.
	s.owed = s.owed || !w.ready && len(w.brought) == 0
	w.ready, w.brought = true, nil
	return added, dropped
}

// unlist removes entries that are not in the list with this mark from the wildcard.
func (s *subscription) unlist(mark uint64) (dropped []*entry) {
	for name, e := range s.entries {
		switch {
		case !e.listed || e.mark == mark:
			continue
		case e.named:
			e.listed = false
			s.look(e)
			continue
		case e.has():
			s.lose(name)
		}
		dropped = append(dropped, e)
		s.drop(e)
	}
	return dropped
}

// lose schedules a removal notice for a name the client has or may have.
func (s *subscription) lose(name string) {
	switch {
	case s.policy.removes && s.gone == nil:
		s.gone = map[string]struct{}{name: {}}
	case s.policy.removes:
		s.gone[name] = struct{}{}
	case s.policy.complete:
		s.owed = true
	}
}

// unlisted reports whether the wildcard's list is not available yet.
func (s *subscription) unlisted() bool { return s.wild != nil && !s.wild.ready }

// telling reports whether the client must get a removal. A name it left may
// be on a list that is not available yet.
func (s *subscription) telling() bool { return len(s.gone) > 0 && !s.unlisted() }

// removed adds removals to b as far as they fit. A name that has come back is skipped.
func (s *subscription) removed(b *batch) {
	if !s.telling() {
		return
	}
	for name := range s.gone {
		if b.size > 0 && b.size+len(name) > maxResponse {
			b.full = true
			break
		}
		delete(s.gone, name)
		if e := s.entries[name]; e == nil || !e.has() && !e.refused {
			b.removed = append(b.removed, name)
			b.size += len(name)
		}
	}
	slices.Sort(b.removed)
}
