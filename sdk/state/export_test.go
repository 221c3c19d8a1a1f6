package state

import "context"

// Looks returns a function that looks for changes once, and returns their number; -1 if it fails.
func (s *Shared) Looks(ctx context.Context) func() int {
	return func() (n int) {
		if s.lookAgain(ctx, false, func(news) { n++ }) != nil {
			return -1
		}
		return n
	}
}
