package program

import (
	"context"
	"sync"
)

// changes collects the trust domains whose roots have changed; pending changes of one
// domain coalesce.
type changes struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	domains map[string]bool
}

// add does not block.
func (c *changes) add(trustDomain string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.domains == nil {
		c.domains = map[string]bool{}
	}
	c.domains[trustDomain] = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changes) take() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.domains
	c.domains = nil
	return taken
}

// reauthorize closes streams whose client certificates no longer verify after the roots of
// their trust domain changed.
func (s *service) reauthorize(ctx context.Context) {
	for {
		select {
		case <-s.changed.wake:
		case <-ctx.Done():
			return
		}
		for domain := range s.changed.take() {
			if n := s.server.Reauthorize(domain); n > 0 {
				s.log.Info("roots changed, closing streams", "trust_domain", domain, "streams", n)
			}
		}
	}
}
