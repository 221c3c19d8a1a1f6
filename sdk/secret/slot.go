package secret

import (
	"sync"
	"sync/atomic"
)

// slot is one name's place: what is held for it, and who is told when that
// changes.
type slot struct {
	item atomic.Pointer[Item]

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

type watcher struct {
	name   string
	notify func(name string)
}

// watch adds a watcher and returns what removes it.
func (s *slot) watch(w *watcher) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers == nil {
		s.watchers = make(map[*watcher]struct{})
	}
	s.watchers[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}
}

func (s *slot) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

// put stores the item and tells the watchers.
func (s *slot) put(item *Item) {
	s.item.Store(item)
	s.notify()
}

// notify calls the watchers, with no lock held.
func (s *slot) notify() {
	s.mu.Lock()
	all := make([]*watcher, 0, len(s.watchers))
	for w := range s.watchers {
		all = append(all, w)
	}
	s.mu.Unlock()
	for _, w := range all {
		w.notify(w.name)
	}
}
