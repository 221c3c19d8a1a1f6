package discovery

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ending is why the server ends a stream when its time is up.
type ending int

const (
	unheard ending = iota // no first request came
	aged
	expired
	drained
)

// endings are the final statuses of streams, with their names in the metrics.
var endings = [...]struct {
	name   string
	status error
}{
	unheard: {"no-request", status.Error(codes.DeadlineExceeded, "no request was received in time")},
	aged:    {"age", status.Error(codes.Unavailable, "the stream reached its maximum age; reconnect")},
	expired: {"credential-expired", status.Error(codes.Unauthenticated, "the credential has expired; reconnect with a new one")},
	drained: {"shutdown", status.Error(codes.Unavailable, "the server is shutting down; reconnect")},
}

// sessions tracks open sessions and when each must end. One heap of deadlines serves all:
// no stream needs a goroutine or timer of its own.
type sessions struct {
	limits Limits
	times  Times
	now    func() time.Time
	wake   chan struct{} // a deadline moved forward

	mu        sync.Mutex
	open      map[*session]struct{}
	deadlines deadlines
	holders   map[holder]int // how many sessions each has
	last      uint64
	draining  bool
}

// holder is an identity in a cluster: clusters may have service accounts with the same
// name, and those of one must not use up what another's may have.
type holder struct{ cluster, identity string }

func newSessions(c Config) *sessions {
	return &sessions{
		limits: c.Limits, times: c.Times, now: func() time.Time { return c.Now().Round(0) }, wake: make(chan struct{}, 1),
		open: map[*session]struct{}{}, holders: map[holder]int{},
	}
}

// enter adds a session, or returns the status to refuse it with.
func (r *sessions) enter(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		return endings[drained].status
	case len(r.open) >= r.limits.Streams:
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, more are not served", len(r.open))
	}
	if err := r.hold(s, holder{s.caller.Cluster, s.identity.String()}); err != nil {
		return err
	}
	r.last++
	s.number, s.since = r.last, r.now()
	r.open[s] = struct{}{}
	s.ends, s.why = s.since.Add(r.times.FirstRequest), unheard
	if until := s.identity.Expiry; !until.IsZero() && until.Before(s.ends) {
		s.ends, s.why = until, expired
	}
	heap.Push(&r.deadlines, s)
	r.nudge()
	return nil
}

// settle moves a session to the cluster that its first request names, or returns the
// status to refuse it with.
func (r *sessions) settle(s *session, cluster string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := s.holder
	if _, open := r.open[s]; !open || cluster == from.cluster {
		return nil // a stream that has ended counts nowhere
	}
	err := r.hold(s, holder{cluster, from.identity})
	if err == nil {
		r.release(from)
	}
	return err
}

// hold counts a session as the holder's. The caller holds mu.
func (r *sessions) hold(s *session, by holder) error {
	if n := r.holders[by]; n >= r.limits.StreamsOfIdentity {
		return status.Errorf(codes.ResourceExhausted, "%d streams of this identity are open, more are not served", n)
	}
	r.holders[by]++
	s.holder = by
	return nil
}

// release undoes hold. The caller holds mu.
func (r *sessions) release(by holder) {
	if r.holders[by]--; r.holders[by] == 0 {
		delete(r.holders, by)
	}
}

// leave undoes enter, once.
func (r *sessions) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.open[s]; !open {
		return
	}
	delete(r.open, s)
	r.release(s.holder)
	if s.place >= 0 {
		heap.Remove(&r.deadlines, s.place)
	}
}

// speaks gives a session its full lifetime once its first request has arrived.
func (r *sessions) speaks(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.place < 0 || s.why != unheard {
		return
	}
	jitter := 0.9 + 0.2*rand.Float64()
	s.ends, s.why = s.since.Add(time.Duration(jitter*float64(r.times.Lifetime))), aged
	if until := s.identity.Expiry; !until.IsZero() && until.Before(s.ends) {
		s.ends, s.why = until, expired
	}
	heap.Fix(&r.deadlines, s.place)
	r.nudge()
}

// drain refuses new sessions and spreads the ends of all others over time.
func (r *sessions) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	now := r.now()
	for _, s := range r.deadlines {
		if end := now.Add(time.Duration(rand.Float64() * float64(r.times.Drain))); end.Before(s.ends) {
			s.ends, s.why = end, drained
		}
	}
	heap.Init(&r.deadlines)
	r.nudge()
}

// due removes the sessions whose time is up and returns them by reason, and how long it
// is until the next one.
func (r *sessions) due() (gone map[ending]map[*session]bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	gone = map[ending]map[*session]bool{}
	for len(r.deadlines) > 0 {
		s := r.deadlines[0]
		if s.ends.After(now) {
			return gone, s.ends.Sub(now)
		}
		heap.Pop(&r.deadlines)
		s.over = endings[s.why].status
		if gone[s.why] == nil {
			gone[s.why] = map[*session]bool{}
		}
		gone[s.why][s] = true
	}
	return gone, look
}

// ended returns the status that ended a session, which the engine may not know yet.
func (r *sessions) ended(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.over
}

// plan returns when a session ends.
func (r *sessions) plan(s *session) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.ends
}

// all returns the sessions in the order in which they opened.
func (r *sessions) all() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*session, 0, len(r.open))
	for s := range r.open {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return int(a.number) - int(b.number) }) // #nosec G115 -- they count up from 1
	return all
}

func (r *sessions) isDraining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

func (r *sessions) nudge() {
	select {
	case r.wake <- struct{}{}:
	default: // a wakeup is already pending
	}
}

// deadlines is a heap of sessions, earliest deadline first.
type deadlines []*session

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].ends.Before(d[j].ends) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].place, d[j].place = i, j }

// Push implements [heap.Interface].
func (d *deadlines) Push(x any) {
	s, _ := x.(*session)
	s.place = len(*d)
	*d = append(*d, s)
}

// Pop implements [heap.Interface].
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	s := (*d)[last]
	(*d)[last] = nil
	*d, s.place = (*d)[:last], -1
	return s
}
