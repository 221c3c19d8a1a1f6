package tokensource

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/holder"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// signaturesPerSecond of one holder, beside 200 at once: what is held costs none, and a token of
	// 5 minutes is renewed after half of them.
	signaturesPerSecond = 4
	maxHolders          = 4096
)

// admit reports whether the holder of the context may have the order signed. It joins a signature
// that is in the making for nothing.
func (s *Source) admit(ctx context.Context, o Order) error {
	name := holder.Of(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signing[o.key()] > 0 || name == "" {
		return nil
	}
	b := s.budgets[name]
	if b == nil {
		if len(s.budgets) >= maxHolders {
			clear(s.budgets)
		}
		b = &loglimit.Bucket{PerSecond: signaturesPerSecond}
		s.budgets[name] = b
	}
	if _, ok := b.Allow(time.Now()); !ok {
		return ca.Errorf(ca.RateLimited, "this caller had too many %ss signed: %d a second are allowed", s.cfg.Kind.Name, signaturesPerSecond)
	}
	return nil
}

// signs notes that an order is being signed, until done.
func (s *Source) signs(o Order) (done func()) {
	key := o.key()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signing[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.signing[key]--; s.signing[key] == 0 {
			delete(s.signing, key)
		}
	}
}
