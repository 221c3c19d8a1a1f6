package pluginhost

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	healthDeadline = 5 * time.Second
	healthMisses   = 3
)

// askHealth kills a life that does not answer, such as a stopped (SIGSTOP) or hanging one.
// It returns when calls go elsewhere.
func (s *Provider) askHealth(l *life) {
	ticker := time.NewTicker(s.opts.HealthInterval)
	defer ticker.Stop()
	misses := 0
	for {
		select {
		case <-ticker.C:
		case <-l.leaving.Done():
			return
		}
		err := s.health(l)
		switch {
		case l.leaving.Err() != nil:
			return
		case err == nil || ca.ActionFor(err) == ca.Missing:
			misses = 0
			continue
		}
		misses++
		s.log.Warn("provider missed a health check", "misses", misses, "error", text.Clean(err.Error()))
		if misses == healthMisses {
			l.Kill(fmt.Errorf("missed %d health checks: %w", misses, err))
			return
		}
	}
}

func (s *Provider) health(l *life) error {
	ctx, cancel := context.WithTimeout(l.leaving, min(healthDeadline, s.opts.HealthInterval))
	defer cancel()
	return l.Health(ctx)
}
