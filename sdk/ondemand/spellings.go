package ondemand

// maxSpellings is how many spellings of one name may be subscribed to, beside the folded name. All
// names together may have as many as they are themselves, by Rule.Names: a proxy holds each spelling as
// a name of its own, and a stream of sdk/xds has a limit.
const maxSpellings = 16

// overspelled reports whether a subscription would be one spelling too many.
func (s *Set) overspelled(name, asked string) bool {
	if asked == name {
		return false
	}
	e := s.names[name]
	if e != nil && e.spellings[asked] > 0 {
		return false
	}
	return s.spelled >= s.mostSpelled || e != nil && len(e.spellings) >= maxSpellings
}

// spell counts a subscription under a spelling.
func (s *Set) spell(e *entry, asked string) {
	if asked == e.name {
		return
	}
	if e.spellings == nil {
		e.spellings = map[string]int{}
	}
	if e.spellings[asked]++; e.spellings[asked] == 1 {
		s.spelled++
	}
}

// unspell takes back what spell counted.
func (s *Set) unspell(e *entry, asked string) {
	if asked == e.name {
		return
	}
	if e.spellings[asked]--; e.spellings[asked] == 0 {
		delete(e.spellings, asked)
		s.spelled--
	}
}
