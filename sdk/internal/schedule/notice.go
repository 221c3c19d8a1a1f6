package schedule

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

const linesPerMinute = 10

// notices are what others get to know once the lock is released.
type notices struct {
	outbox []func()
	quiet  map[string]*quiet // limits log lines, for each message
}

// quiet limits log lines when thousands of entries fail at once.
type quiet struct {
	minute time.Time
	lines  int
	unsaid int
}

// Lock takes the lock.
func (s *Scheduler[E]) Lock() { s.mu.Lock() }

// Unlock releases the lock and then sends the queued notices, as watchers, observers and
// logs are foreign code.
func (s *Scheduler[E]) Unlock() {
	out := s.outbox
	s.outbox = nil
	s.mu.Unlock()
	for _, notify := range out {
		notify()
	}
}

// Say queues f to run after the lock is released.
func (s *Scheduler[E]) Say(f func()) { s.outbox = append(s.outbox, f) }

// Complain logs a failure, at most ten with that message per minute.
func (s *Scheduler[E]) Complain(message string, err error, args ...any) {
	now, q := time.Now(), s.quiet[message]
	if q == nil {
		q = &quiet{}
		s.quiet[message] = q
	}
	if now.Sub(q.minute) >= time.Minute {
		q.minute, q.lines = now, 0
	}
	if q.lines++; q.lines > linesPerMinute {
		q.unsaid++
		return
	}
	unsaid := q.unsaid
	q.unsaid = 0
	f := secret.NewFailure(err, now, 0)
	s.Say(func() {
		s.log.Warn(message, append([]any{"reason", f.Reason, "error", f.Text, "suppressed", unsaid}, args...)...)
	})
}
