package kubeca

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	sweepEvery   = time.Hour
	sweepTimeout = 5 * time.Second
	// maxSwept bounds what one sweep deletes, and what it asks for.
	maxSwept = 50
	// Objects are leftovers when they have been decided for an hour, or open for a day: what
	// Kubernetes does with its own. An agent that still waits makes a new one.
	decidedFor, openFor = time.Hour, 24 * time.Hour
)

// sweeps schedules the next sweep. It is safe for concurrent use.
type sweeps struct {
	mu   sync.Mutex
	next time.Time
}

func (s *sweeps) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(sweepEvery)
	return true
}

// sweep deletes what agents that ended have left, once an hour. Kubernetes does that itself for
// CertificateSigningRequests.
func (c *CA) sweep(ctx context.Context, s *session) {
	if c.settings.Issuer == nil || !c.sweeps.due(time.Now()) {
		return
	}
	within, cancel := aside(ctx, sweepTimeout)
	defer cancel()
	if err := c.deleteLeftovers(within, s, time.Now()); err != nil {
		c.log.Debug("cannot delete leftover requests", "error", err)
	}
}

func (c *CA) deleteLeftovers(ctx context.Context, s *session, now time.Time) error {
	at, err := c.settings.collection(s)
	if err != nil {
		return err
	}
	query := url.Values{"labelSelector": {managedBy + "=" + managerName}, "limit": {"50"}}
	for deleted := 0; deleted < maxSwept; {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []object `json:"items"`
		}
		if err := s.do(ctx, call{method: http.MethodGet, path: at, query: query}, &page); err != nil {
			return err
		}
		for _, o := range page.Items {
			if !o.leftover(now) {
				continue
			}
			if err := s.delete(ctx, at, o); err != nil {
				return err
			}
			deleted++
		}
		if page.Metadata.Continue == "" {
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return nil
}

// leftover reports whether no call waits for an object of this provider any more.
func (o object) leftover(now time.Time) bool {
	after := openFor
	if o.decided() {
		after = decidedFor
	}
	ours := o.Metadata.Labels[managedBy] == managerName && !o.Metadata.Created.IsZero()
	return ours && now.Sub(o.Metadata.Created) > after
}
