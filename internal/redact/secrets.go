package redact

import (
	"slices"
	"sync/atomic"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxSecrets bounds the values that are remembered.
const maxSecrets = 256

// Secrets are values to keep out of texts: those in use, and those that were before. A call or a
// line of a log may be older than a change, and a value that is tried may be taken back. The zero
// value has none. One goroutine at a time may add; others may read meanwhile.
type Secrets struct{ known atomic.Pointer[[]ca.Token] }

// Add remembers values, for longer than those that were added before.
func (s *Secrets) Add(values ...ca.Token) {
	next := slices.DeleteFunc(slices.Clone(s.Values()), func(v ca.Token) bool { return slices.Contains(values, v) })
	next = append(next, values...)
	next = slices.Clone(next[max(0, len(next)-maxSecrets):])
	s.known.Store(&next)
}

// Values returns all of them. The caller must not change the slice.
func (s *Secrets) Values() []ca.Token {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return nil
}
