package kubeca

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

const (
	sweepEvery   = time.Hour
	sweepTimeout = 5 * time.Second
	// maxSwept bounds what one sweep deletes.
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
	leftovers, deleted := kubeapi.Call{Path: at, Query: url.Values{"labelSelector": {managedBy + "=" + managerName}}}, 0
	_, err = s.List(ctx, leftovers, func(listed json.RawMessage) error {
		var o object
		if err := json.Unmarshal(listed, &o); err != nil {
			return err
		}
		if !o.leftover(now) {
			return nil
		}
		if deleted++; deleted > maxSwept {
			return errSeen // the rest is for the next sweep
		}
		return s.Delete(ctx, at+"/"+o.Metadata.Name, o.Metadata.UID, "")
	})
	return ignoring(err, errSeen)
}

func ignoring(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
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
