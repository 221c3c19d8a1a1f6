package xds

import "slices"

// star is the name that stands for all that a [Lister] lists.
const star = "*"

// wildcard is a subscription to all that a [Lister] lists. stop belongs to the stream's
// receiving goroutine.
type wildcard struct {
	stop    func()
	due     bool              // the list is to be asked for
	ready   bool              // it was there once
	brought map[string]string // the versions that the client has from an earlier stream, until then
}

// asksForAll tells whether a whole list of names subscribes to the wildcard. None at all
// does only until the client has named something once: the protocol's older way.
func (s *subscription) asksForAll(names []string) bool {
	if len(names) == 0 {
		return s.policy.lists && !s.explicit
	}
	return s.policy.lists && slices.Contains(names, star)
}

// all subscribes to the wildcard. It is listed once it is watched.
func (s *subscription) all(brought map[string]string, st *step) {
	s.wild = &wildcard{brought: brought}
	st.wild = s.wild
}

// none unsubscribes from the wildcard. What was named stays.
func (s *subscription) none(st *step) {
	if s.wild == nil {
		return
	}
	st.unwild, s.wild = s.wild, nil
	s.owed, s.gone = false, nil // the client drops all that it did not name
	for _, e := range s.entries {
		e.listed = false
		if !e.named {
			st.dropped = append(st.dropped, e)
			s.drop(e)
		}
	}
	if s.parked { // what was named waited for the list, which nobody asks for any more
		s.unpark()
		st.woken = true
	}
}

// relist has the list asked for again.
func (s *subscription) relist() {
	if s.wild != nil {
		s.wild.due = true
	}
}

// listed takes the list. What is new is to be watched, then looked up; what is dropped
// to be watched no more.
func (s *subscription) listed(names []string, mark uint64) (added, dropped []*entry) {
	w := s.wild
	if w == nil {
		return nil, nil // unsubscribed while it was asked for
	}
	s.unpark()
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
	dropped = s.unlist(mark)
	for name := range w.brought {
		if s.entries[name] == nil {
			s.lose(name)
		}
	}
	// Whoever waits for a first list hears of an empty one, too.
	s.owed = s.owed || !w.ready && len(w.brought) == 0
	w.ready, w.brought = true, nil
	return added, dropped
}

// unlist takes from the wildcard what the list with this mark did not have.
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

// lose has the client told that a name that it has, or may have, is gone.
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

// telling tells whether the client is to be told of something gone. What it left may be on a
// list that is not there yet.
func (s *subscription) telling() bool {
	return len(s.gone) > 0 && (s.wild == nil || s.wild.ready)
}

// removed puts what is gone into b, as far as it fits. A name that has come back is not
// gone.
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
