// Package watchers keeps the functions that a source calls when something has changed. A source
// has a [Set] for each thing that is watched; [Set.Add] is its Watch.
package watchers

import "sync"

// Set holds functions of type F, such as func(). The zero value is empty. It is safe for
// concurrent use, and must not be copied.
type Set[F any] struct {
	mu  sync.Mutex
	all []*member[F]
}

// member is one function; at is its index, and negative once it is removed.
type member[F any] struct {
	notify F
	at     int
}

// Add adds a function. remove removes it again and may be called twice; a call that is in
// progress may finish after it returns.
func (s *Set[F]) Add(notify F) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &member[F]{notify, len(s.all)}
	s.all = append(s.all, m)
	return func() { s.remove(m) }
}

// remove puts the last member in the place of m: thousands of streams may leave at once.
func (s *Set[F]) remove(m *member[F]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.at < 0 {
		return
	}
	end := len(s.all) - 1
	last := s.all[end]
	s.all[m.at], last.at = last, m.at
	s.all[end] = nil
	s.all, m.at = s.all[:end], -1
}

// All returns the functions as they are now, to be called while no lock is held: one may come back
// for what has changed.
func (s *Set[F]) All() []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]F, len(s.all))
	for i, m := range s.all {
		all[i] = m.notify
	}
	return all
}

// Len returns the number of functions.
func (s *Set[F]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
