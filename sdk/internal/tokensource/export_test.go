package tokensource

import (
	"strconv"
	"time"
)

// KeepMany keeps tokens of n orders and returns how many are held.
func (s *Source) KeepMany(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range n {
		s.keep(strconv.Itoa(i), &holding{reply: Reply{Ends: now.Wall.Add(time.Minute)}}, now)
	}
	return len(s.held)
}
