package workloadapi

import "time"

// SetClock replaces the wall clock, before the first call.
func (s *Service) SetClock(now func() time.Time) { s.now = now }
