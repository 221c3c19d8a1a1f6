package tokensource

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// MaxMaintained bounds the orders that are maintained at the same time. It is less than maxHeld.
	MaxMaintained = maxHeld / 2
	// shortestLook bounds how often Maintain looks at an order that is due.
	shortestLook = time.Second
)

// Maintain keeps a token of an order until ctx ends: it has the token replaced when that is due and
// calls changed after each change of what Peek returns. There may be [MaxMaintained] at a time.
func (s *Source) Maintain(ctx context.Context, o Order, changed func()) {
	defer s.maintains(o)()
	last := ca.Token("")
	for ctx.Err() == nil {
		keys := s.keysChange()
		if _, due, _ := s.look(o, s.now()); due {
			_, _ = s.join(ctx, o, nil) // Peek has the error
		}
		if now, _ := s.Peek(o); now.Token != last || last == "" {
			last = now.Token
			changed()
		}
		rotation.Sleep(ctx, s.untilDue(o), s.cfg.Now, keys)
	}
}

func (s *Source) maintains(o Order) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maintained[o.key()]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.maintained[o.key()]--; s.maintained[o.key()] == 0 {
			delete(s.maintained, o.key())
		}
	}
}

func (s *Source) keysChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// untilDue returns how long the authority need not or must not be asked. What a shared pause holds back
// comes back one by one.
func (s *Source) untilDue(o Order) time.Duration {
	if s.missing.Load() {
		return rotation.Never // until the keys come
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.outage.pause.Left(now)
	if of := s.identities[o.ID]; of != nil {
		shared = max(shared, of.pause.Left(now))
	}
	wait := spread(shared, now)
	if h := s.held[o.key()]; h != nil {
		wait = max(wait, h.refusal.pause.Left(now))
		if s.works(h, now) && h.fresh(now.Wall) {
			wait = max(wait, h.renew.Sub(now.Wall))
		}
	}
	return max(wait, shortestLook)
}

// spread draws a wait from the rest of a shared pause up to twice that, as if the authority had asked
// each order to wait so long.
func spread(rest time.Duration, now rotation.Time) time.Duration {
	if rest <= 0 {
		return 0
	}
	return new(rotation.Waits).After(&ca.Error{Reason: ca.RateLimited, RetryAfter: rest}, now.Mono, 0, 0)
}

// Peek returns the token that is held of an order until it ends, even while the authority publishes its
// key no more and Maintain has it replaced; or why there is none, [ca.ErrUnavailable] at first.
func (s *Source) Peek(o Order) (Reply, error) {
	now := s.now()
	_, _, err := s.look(o, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[o.key()]; h != nil && h.reply.Token != "" && now.Wall.Before(h.reply.Ends.Add(-leastLeft)) {
		return h.reply, nil
	}
	if err == nil {
		err = ca.Errorf(ca.Unavailable, "no %s is there yet", s.cfg.Kind.Name)
	}
	return Reply{}, err
}
