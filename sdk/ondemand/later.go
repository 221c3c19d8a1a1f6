package ondemand

import (
	"sync"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// WatchRefused watches a name that Watch has refused, where a rule matches it, until stop is called: another
// subscription may get its certificate, which Peek then returns to all. It asks for nothing itself.
// [secret.First] calls it, as its own Watch may succeed for the sake of another source.
func (s *Set) WatchRefused(asked string, notify func(name string)) (stop func()) {
	name, err := names.Fold(asked)
	if err != nil || s.match(name) == nil {
		return func() {}
	}
	s.sched.Lock()
	defer s.sched.Unlock()
	all := s.refused[name]
	if all == nil {
		all = &watchers.Set[func()]{}
		s.refused[name] = all
	}
	remove := all.Add(func() { notify(asked) })
	return sync.OnceFunc(func() { s.leftRefused(name, all, remove) })
}

func (s *Set) leftRefused(name string, all *watchers.Set[func()], remove func()) {
	s.sched.Lock()
	defer s.sched.Unlock()
	if remove(); all.Len() == 0 && s.refused[name] == all {
		delete(s.refused, name)
	}
}

// notify notifies all watchers of an entry.
func (s *Set) notify(e *entry) {
	for _, notify := range e.watchers.All() {
		s.sched.Say(notify)
	}
	if all := s.refused[e.name]; all != nil {
		for _, notify := range all.All() {
			s.sched.Say(notify)
		}
	}
}
