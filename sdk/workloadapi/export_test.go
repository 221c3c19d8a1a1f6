package workloadapi

import (
	"context"
	"time"
)

// SetClock replaces the wall clock, before the first call.
func (s *Service) SetClock(now func() time.Time) { s.now = now }

// Wait waits as a stream without changes does.
func Wait(ctx context.Context, until time.Time, now func() time.Time) error {
	return (&stream{}).wait(ctx, until, now)
}

// Calling returns how many calls of a caller wait for its turn or have it.
func (s *Server) Calling(id string) int {
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	if c := s.service.calling[id]; c != nil {
		return c.calls
	}
	return 0
}
