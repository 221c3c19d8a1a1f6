package tokenreview

import (
	"context"
	"slices"
	"sync"
)

// slots limits the reviews in progress: in total, and for each peer, so that one peer's
// made-up tokens cannot keep others waiting. A freed slot goes to the waiting peer with
// the fewest reviews in progress. Peers without a name share no limit.
type slots struct {
	most, ofPeer int

	mu      sync.Mutex
	used    int
	by      map[string]int
	waiting []*waiter // in order of arrival
}

type waiter struct {
	peer string
	turn chan struct{} // closed when it has a slot
}

// take waits for a slot until ctx ends. Call free once if there is one.
func (s *slots) take(ctx context.Context, peer string) (free func(), ok bool) {
	w := &waiter{peer, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.turn:
		return func() { s.free(peer) }, true
	case <-ctx.Done():
		s.leave(w)
		return nil, false
	}
}

func (s *slots) free(peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.by[peer]--; s.by[peer] == 0 {
		delete(s.by, peer)
	}
	s.grant()
}

// leave gives up waiting, or the slot if it was granted meanwhile.
func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	i := slices.Index(s.waiting, w)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.free(w.peer)
	}
}

// grant gives free slots to waiters. The caller holds mu.
func (s *slots) grant() {
	for s.used < s.most {
		i := s.next()
		if i < 0 {
			return
		}
		w := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.used++
		s.by[w.peer]++
		close(w.turn)
	}
}

// next returns the first waiter of the peer with the fewest slots, or -1.
func (s *slots) next() int {
	next := -1
	for i, w := range s.waiting {
		if w.peer != "" && s.by[w.peer] >= s.ofPeer {
			continue
		}
		if next < 0 || s.by[w.peer] < s.by[s.waiting[next].peer] {
			next = i
		}
	}
	return next
}
