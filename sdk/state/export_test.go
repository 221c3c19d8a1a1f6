package state

import (
	"context"
	"os"
)

// Looks returns a function that looks for changes once, and returns their number; -1 if it fails.
func (s *Shared) Looks(ctx context.Context) func() int {
	return func() (n int) {
		if s.lookAgain(ctx, false, func(news) { n++ }) != nil {
			return -1
		}
		return n
	}
}

// SpoilReads has each read of a record or a claim end with the error that fault returns for its file, if any.
func (s *Shared) SpoilReads(fault func(file string) error) {
	s.read = func(sub *os.Root, file string, most int64) ([]byte, error) {
		if err := fault(file); err != nil {
			return nil, &os.PathError{Op: "read", Path: file, Err: err}
		}
		return readPrivate(sub, file, most)
	}
}
