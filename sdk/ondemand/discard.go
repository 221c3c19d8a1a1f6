package ondemand

import (
	"context"
	"sync/atomic"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// discarders is how many records are deleted at once, which share an fsync.
const discarders = 32

// deletion is that of one record.
type deletion struct {
	begun bool
	done  chan struct{}
	known term        // what the record has, as far as is known
	spec  secret.Spec // to read a shared record with
}

// discard deletes the record of a name that is dropped, soon. A shared one is deleted if it has what is
// known, or an order only, and if a rule matches the name.
func (s *Set) discard(name string, known term) {
	if s.cfg.Storage == nil || s.closed || s.discarding[name] != nil {
		return
	}
	d := &deletion{done: make(chan struct{}), known: known}
	if s.shared != nil {
		r := s.match(name)
		if r == nil {
			return
		}
		d.spec = r.spec(name)
	}
	s.discarding[name] = d
	s.discards = append(s.discards, name)
	if s.discarders < discarders {
		s.discarders++
		s.sched.Go(s.discardAll)
	}
}

// discardAll deletes records until none is left to delete.
func (s *Set) discardAll() {
	turn := <-s.deleting
	defer func() { s.deleting <- turn }()
	for name, d := s.nextDiscard(); d != nil; name, d = s.nextDiscard() {
		if s.shared != nil {
			s.reportDiscard(s.discardShared(s.sched.Context, turn, name, d))
			s.discarded(name, d)
			continue
		}
		var called atomic.Bool
		_, err := call.Do(s.sched.Context, storageTimeout, turn, func(ctx context.Context) (struct{}, error) {
			called.Store(true)
			defer s.discarded(name, d) // a Storage may ignore its context; a Store waits for it
			return struct{}{}, s.cfg.Storage.Delete(ctx, name)
		})
		if !called.Load() {
			s.discarded(name, d)
		}
		s.reportDiscard(err)
	}
}

func (s *Set) nextDiscard() (string, *deletion) {
	s.sched.Lock()
	defer s.sched.Unlock()
	for len(s.discards) > 0 && !s.closed {
		name := s.discards[0]
		s.discards = s.discards[1:]
		if d := s.discarding[name]; d != nil && !d.begun {
			d.begun = true
			return name, d
		}
	}
	s.discarders--
	return "", nil
}

func (s *Set) discarded(name string, d *deletion) {
	s.sched.Lock()
	defer s.sched.Unlock()
	if s.discarding[name] == d {
		delete(s.discarding, name)
		close(d.done)
	}
}

func (s *Set) reportDiscard(err error) {
	s.sched.Lock()
	defer s.sched.Unlock()
	if err != nil && !s.closed {
		s.sched.Complain("cannot delete a stored certificate", err)
	}
}

// awaitDiscard waits until the last record of the name is deleted. One that is to be replaced
// need not be.
func (s *Set) awaitDiscard(ctx context.Context, name string) error {
	s.sched.Lock()
	d := s.discarding[name]
	if d != nil && !d.begun {
		delete(s.discarding, name)
		d = nil
	}
	s.sched.Unlock()
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
