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

// subscription is what one watch asks for and what its client has of it. It has no
// goroutine and no lock.
type subscription struct {
	cache   *Cache
	caller  secret.Caller
	removes bool // the dialect tells of names that are unknown
	names   []string
	had     map[string]had
	held    map[string]time.Time // until when updates are kept back at most
}

// had is what the client was told of one name.
type had struct {
	version string    // of the content; empty for none
	refused bool      // that there is no such name
	until   time.Time // roots that are not acknowledged: waited for until then at most
	sent    *receipt  // the response that these roots were sent with
}

// batch is what is to be told now.
type batch struct {
	resources []*xds.Resource
	removed   []string
	size      int
	full      bool           // something did not fit
	wake      time.Time      // when to look again, without a change; zero: never
	has       map[string]had // all that the client then has
	sent      *receipt
}

func (b batch) empty() bool { return len(b.resources)+len(b.removed) == 0 }

// next returns what the client is to be told now, and counts it as told.
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
			s.tell(&b, r, now)
		}
	}
	for _, r := range needing {
		if !b.full && !s.holds(&b, r, roots, now) { // where it is full, the roots may be among the rest
			s.tell(&b, r, now)
		}
	}
	b.has = maps.Clone(s.had)
	return b, nil
}

// unchanged notes that the client has what there is of a name.
func (s *subscription) unchanged(name string) {
	h := s.had[name]
	h.refused = false
	s.had[name] = h
	delete(s.held, name)
}

// all waits until every name is there or refused, and returns what is there.
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

// tell puts a resource into the batch, if it fits.
func (s *subscription) tell(b *batch, r *xds.Resource, now time.Time) {
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

// holds tells whether a certificate is kept back, as its roots are on their way.
func (s *subscription) holds(b *batch, r *xds.Resource, roots []*xds.Resource, now time.Time) bool {
	until := s.awaited(r.Needs, roots)
	if until.IsZero() {
		return false
	}
	// The first bound stands: roots that change again and again must not starve it.
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

// awaited returns until when a root is on its way to the client: zero if it
// acknowledged a bundle that has it, or asks for none that does.
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
