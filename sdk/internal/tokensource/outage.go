package tokensource

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// longestWord bounds the authority's own word in calls that fail beside another.
	longestWord = 10 * time.Minute
	// leastShare is the least bound of a pause that different orders share.
	leastShare = 10 * time.Second
)

// outage is the wait after failures in a row: of one order, of the orders of one identity, or of the
// authority.
type outage struct {
	of    string // what failed first
	count int    // of all pauses so far
	pause rotation.Pause
	waits rotation.Waits
	since time.Time // monotonic: of the first failure
	err   error     // the one that the pause is for
}

// extend returns when the pause ends. A call that failed in parallel with the one that began the
// pause adds nothing but its retry-after. Without a retry-after, the pause has at most a length, if
// that is not zero.
func (f *outage) extend(err error, now rotation.Time, left, most time.Duration, pauses int) time.Time {
	wait := min(ca.RetryAfter(err), longestWord)
	if pauses == f.count {
		if f.err == nil {
			f.since = now.Mono
		}
		f.count++
		if wait = f.waits.After(err, now.Mono, max(0, left), now.Mono.Sub(f.since)); most > 0 && ca.RetryAfter(err) <= 0 {
			wait = min(wait, new(rotation.Waits).Next(rotation.Row{First: most, Most: most}))
		}
	}
	if next := rotation.NewPause(wait, now); next.Left(now) > f.pause.Left(now) {
		f.pause, f.err = next, err
	}
	return now.Wall.Add(f.pause.Left(now))
}

// spreads notes a failure of one of those that it is an outage of, and reports whether different
// ones have failed since the last success: only then does a pause of all of them follow.
func (f *outage) spreads(of string) bool {
	if f.of == "" {
		f.of = of
	}
	return f.err != nil || f.of != of
}

// outages are those that a call began after.
type outages struct{ identity, authority int }

// outagesOf returns the counts, and the error of the first pause that is not over. The caller holds
// the lock.
func (s *Source) outagesOf(id string, now rotation.Time) (before outages, err error) {
	before.authority = s.outage.count
	if !s.outage.pause.Over(now) {
		err = s.outage.err
	}
	if of := s.identities[id]; of != nil {
		before.identity = of.count
		if !of.pause.Over(now) {
			err = of.err
		}
	}
	return before, err
}

// fail remembers why a call failed, and returns when its order is next asked for. One caller's order
// may fail for a reason of its own, and it may make many: the pause is of the order first, of its
// identity when different orders fail, and of the authority when those of different identities do.
func (s *Source) fail(o Order, err error, now rotation.Time, before outages) time.Time {
	var most time.Duration // as a pause must not outlast what is held
	if h := s.held[o.key()]; h != nil && s.works(h, now) {
		most = max(leastShare, h.reply.Ends.Sub(now.Wall)/10)
	}
	switch ca.ActionFor(err) {
	case ca.EndAttempt:
		return s.refuse(o, err, now)
	case ca.RefreshToken, ca.Missing, ca.Configure: // the agent's own credential and provider are everybody's
		return s.outage.extend(err, now, 0, most, before.authority)
	}
	next := s.refuse(o, err, now)
	if errors.Is(err, ca.ErrPending) || errors.Is(err, errReply) {
		return next // of this order alone
	}
	of := s.identities[o.ID]
	if of == nil {
		if len(s.identities) >= maxHeld {
			clear(s.identities) // a pause less costs a call more
		}
		of = &outage{}
		s.identities[o.ID] = of
	}
	if of.spreads(o.key()) {
		next = clock.Later(next, of.extend(err, now, 0, most, before.identity))
	}
	if s.outage.spreads(o.ID) {
		next = clock.Later(next, s.outage.extend(err, now, 0, most, before.authority))
	}
	return next
}

// Retry ends all pauses: the authority was replaced, or has other settings or another credential.
func (s *Source) Retry() {
	s.mu.Lock()
	s.outage = outage{count: s.outage.count + 1} // calls in flight begin no other
	clear(s.identities)
	for _, h := range s.held {
		h.refusal = outage{}
	}
	s.mu.Unlock()
	select {
	case s.retries <- struct{}{}:
	default: // one is pending
	}
	s.wake()
}

// succeed ends the outages that an order shows to be over.
func (s *Source) succeed(o Order) {
	s.outage = outage{count: s.outage.count}
	delete(s.identities, o.ID)
}
