package controlplane

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

var errClosed = status.Error(codes.Unavailable, "the source of secrets is closed")

// subscription is what one watch requests and what its client has. It has no goroutine
// and no lock.
type subscription struct {
	cache   *Cache
	caller  secret.Caller
	removes bool // the dialect reports unknown names
	names   []string
	had     map[string]had
	held    map[string]time.Time // deadlines for delayed updates
}

// had is what the client was sent for one name.
type had struct {
	version string    // of the content; empty for none
	refused bool      // reported as unknown
	until   time.Time // deadline for the ACK of unacknowledged roots
	sent    *receipt  // the response that carried these roots
}

// batch is what to send now.
type batch struct {
	resources []*xds.Resource
	removed   []string
	size      int
	full      bool           // something did not fit
	wake      time.Time      // when to look again without a change; zero: never
	has       map[string]had // everything the client has afterwards
	sent      *receipt
}

func (b batch) empty() bool { return len(b.resources)+len(b.removed) == 0 }

// next returns what to send to the client now and records it as sent.
func (s *subscription) next(now time.Time) (batch, error) {
	b := batch{sent: &receipt{}}
	var found, needing, roots []*xds.Resource
	for _, name := range s.names {
		switch r, err := s.peek(name); {
		case errors.Is(err, xds.ErrUnknown):
			s.refuse(&b, name)
		case errors.Is(err, secret.ErrClosed):
			return batch{}, errClosed
		case err != nil: // not ready; the client keeps what it has
		default:
			found = append(found, r)
		}
	}
	for _, r := range found {
		if len(r.Provides) > 0 {
			roots = append(roots, r)
		}
		switch h := s.had[r.Name]; {
		case h.version == r.Version:
			s.unchanged(r.Name)
		case r.Needs != "" && h.version != "":
			needing = append(needing, r)
		default:
			s.add(&b, r, now)
		}
	}
	for _, r := range needing {
		if !b.full && !s.holds(&b, r, roots, now) { // if it is full, the roots may be in the rest
			s.add(&b, r, now)
		}
	}
	b.has = maps.Clone(s.had)
	return b, nil
}

// unchanged records that the client has the current version of a name.
func (s *subscription) unchanged(name string) {
	h := s.had[name]
	h.refused = false
	s.had[name] = h
	delete(s.held, name)
}

// all waits until every name is available or refused, and returns the available ones.
func (s *subscription) all(ctx context.Context) (batch, error) {
	for _, name := range s.names {
		if len(name) > maxName {
			continue
		}
		_, err := secret.Get(ctx, s.cache.cfg.Secrets, s.caller, name)
		switch {
		case errors.Is(err, secret.ErrClosed):
			return batch{}, errClosed
		case ctx.Err() != nil:
			return batch{}, status.FromContextError(context.Cause(ctx)).Err()
		}
	}
	return s.next(time.Now())
}

func (s *subscription) peek(name string) (*xds.Resource, error) {
	if len(name) > maxName {
		return nil, xds.ErrUnknown
	}
	return s.cache.resources.Peek(s.caller, name)
}

// refuse leaves a name out.
func (s *subscription) refuse(b *batch, name string) {
	h := s.had[name]
	if h.refused {
		return
	}
	h.refused = true
	if s.removes {
		h = had{refused: true}
		b.removed = append(b.removed, name)
	}
	s.had[name] = h
	s.cache.cfg.Refused(s.caller, name)
}

// add adds a resource to the batch if it fits.
func (s *subscription) add(b *batch, r *xds.Resource, now time.Time) {
	size := len(r.Name) + len(r.Version) + len(r.Body.GetTypeUrl()) + len(r.Body.GetValue())
	if b.size > 0 && b.size+size > maxResponse {
		b.full = true
		return
	}
	b.size += size
	b.resources = append(b.resources, r)
	h := had{version: r.Version}
	if len(r.Provides) > 0 && s.cache.cfg.Hold > 0 {
		h.until, h.sent = now.Add(s.cache.cfg.Hold), b.sent
	}
	s.had[r.Name] = h
	delete(s.held, r.Name)
}

// holds reports whether a certificate must wait because its roots are in flight.
func (s *subscription) holds(b *batch, r *xds.Resource, roots []*xds.Resource, now time.Time) bool {
	until := s.awaited(r.Needs, roots)
	if until.IsZero() {
		return false
	}
	// The first deadline stands: roots that keep changing must not starve it.
	if first, held := s.held[r.Name]; held {
		until = first
	}
	if !now.Before(until) {
		return false
	}
	s.held[r.Name] = until
	if b.wake.IsZero() || until.Before(b.wake) {
		b.wake = until
	}
	return true
}

// awaited returns the deadline for an in-flight root: zero if the client acknowledged a
// bundle that contains it, or requests none that does.
func (s *subscription) awaited(root string, bundles []*xds.Resource) (until time.Time) {
	for _, b := range bundles {
		if !slices.Contains(b.Provides, root) {
			continue
		}
		h := s.had[b.Name]
		if h.until.IsZero() {
			return time.Time{}
		}
		if h.until.After(until) {
			until = h.until
		}
	}
	return until
}
