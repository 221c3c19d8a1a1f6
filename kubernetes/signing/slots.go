package signing

import (
	"context"
	"sync"
	"time"
)

const (
	// mostCalls is how many calls of one kind are under way at once; an owner has half of them,
	// so that a flood of one leaves room for the others.
	mostCalls = 32
	// callTimeout bounds one call of the API server.
	callTimeout = 10 * time.Second
)

// Slots bound the calls of the API server that are under way, shared fairly between the owners of
// requests: namespaces, or who made them. Those who wait for a slot have no deadline but their
// context's: a call's own begins with it. It is safe for concurrent use.
type Slots struct {
	all chan struct{}

	mu     sync.Mutex
	owners map[string]*share
}

// share are the slots of one owner.
type share struct {
	taken chan struct{}
	users int // that have one or wait for one
}

// NewSlots returns 32 free slots, of which one owner may have half.
func NewSlots() *Slots {
	return &Slots{all: make(chan struct{}, mostCalls), owners: map[string]*share{}}
}

// Do calls f in a slot of the owner, with a deadline of 10 s. It returns f's error, or ctx's if
// that ended first.
func (s *Slots) Do(ctx context.Context, owner string, f func(context.Context) error) error {
	mine := s.enter(owner)
	defer s.leave(owner, mine)
	for _, room := range []chan struct{}{mine.taken, s.all} {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if ctx.Err() != nil { // select takes any of two that are ready
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

func (s *Slots) enter(owner string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.owners[owner]
	if mine == nil {
		mine = &share{taken: make(chan struct{}, mostCalls/2)}
		s.owners[owner] = mine
	}
	mine.users++
	return mine
}

func (s *Slots) leave(owner string, mine *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(s.owners, owner)
	}
}
