package ondemand

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// saves is how long it waits before a certificate is stored again, after the Storage failed.
var saves = rotation.Row{First: time.Second, Most: time.Minute}

// unsaved are the certificates that are served and that Storage may not have. One at a time is stored
// again. The scheduler's lock guards them.
type unsaved struct {
	items map[*entry]*secret.Item
	busy  bool // a goroutine stores them
	turn  call.Turn
}

// landed notes whether the certificate of a job is stored.
func (s *Set) landed(j *job) {
	if j.unsaved == nil {
		delete(s.unsaved.items, j.entry)
		return
	}
	s.sched.Complain("cannot store a certificate on demand: it is served, and stored later", j.unsaved, "rule", j.conf.Name, "name", j.name)
	s.unsaved.items[j.entry] = j.item
	if !s.unsaved.busy && !s.closed {
		s.unsaved.busy = true
		s.sched.Go(s.saveAgain)
	}
}

// saveAgain stores certificates until each is stored. While it fails it takes another one each time,
// after a pause.
func (s *Set) saveAgain() {
	var waits rotation.Waits
	pause := waits.Next(saves)
	for {
		select {
		case <-time.After(pause):
		case <-s.sched.Context.Done():
			return
		}
		j, left := s.nextUnsaved()
		if !left {
			return
		}
		pause = saves.First // all have an order in flight, which stores them
		if j == nil {
			continue
		}
		pause = 0
		if j.unsaved = j.saveNow(s.sched.Context, s.unsaved.turn); j.unsaved != nil {
			pause = waits.Next(saves)
		} else {
			waits.Reset()
		}
		s.savedAgain(j)
	}
}

// nextUnsaved returns what to store next. The entry has no order until savedAgain. left is false if the
// goroutine has to end; without a job, what is left cannot be stored now.
func (s *Set) nextUnsaved() (j *job, left bool) {
	s.sched.Lock()
	defer s.sched.Unlock()
	for e, item := range s.unsaved.items {
		switch {
		case e.Gone(), item.Expired(s.sched.Now()):
			delete(s.unsaved.items, e)
		case !e.asking():
			e.saving = true
			return &job{set: s, entry: e, conf: e.rule.conf, spec: e.rule.spec(e.name), name: e.name, item: item, order: e.order}, true
		}
	}
	s.unsaved.busy = len(s.unsaved.items) > 0 && !s.closed
	return nil, s.unsaved.busy
}

func (j *job) saveNow(ctx context.Context, turn call.Turn) error {
	if j.set.shared != nil {
		return j.saveShared(ctx, turn)
	}
	return j.save(ctx, turn, j.item, j.order)
}

func (s *Set) savedAgain(j *job) {
	s.sched.Lock()
	defer s.sched.Unlock()
	e := j.entry
	e.saving, e.stored = false, e.stored || j.saved || j.overtaken
	if j.saved {
		e.known = j.known
	}
	e.stale = e.stale || j.overtaken
	if j.unsaved == nil {
		delete(s.unsaved.items, e)
	}
	s.sched.Schedule(e) // it may be due by now
}
