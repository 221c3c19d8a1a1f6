package tokenreview

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// flight is one review, shared by all callers with the same token.
type flight struct {
	end  context.CancelFunc
	done chan struct{} // closed once id and err are set
	id   authn.Identity
	err  error

	// Guarded by the reviewer's mu.
	callers   int
	reviewing bool // it has a slot
}

// join returns the flight for a token, which leave must follow.
func (r *Reviewer) join(key tokenKey, c authn.Credential) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.flights[key]
	if f == nil {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		f = &flight{end: cancel, done: make(chan struct{})}
		r.flights[key] = f
		go r.fly(ctx, f, key, c)
	}
	f.callers++
	return f
}

// leave ends a flight that still waits for a slot once no caller waits for its answer:
// otherwise callers that come and go would leave any number of them. A review that was sent goes
// on, as its answer is worth keeping.
func (r *Reviewer) leave(key tokenKey, f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.callers--; f.callers == 0 && !f.reviewing {
		f.end()
		r.forget(key, f)
	}
}

// forget makes the next caller begin a new flight. The caller holds mu.
func (r *Reviewer) forget(key tokenKey, f *flight) {
	if r.flights[key] == f {
		delete(r.flights, key)
	}
}

func (r *Reviewer) fly(ctx context.Context, f *flight, key tokenKey, c authn.Credential) {
	defer f.end()
	f.id, f.err = r.answer(ctx, f, key, c)
	r.mu.Lock()
	r.forget(key, f)
	r.mu.Unlock()
	close(f.done)
}

func (r *Reviewer) answer(ctx context.Context, f *flight, key tokenKey, c authn.Credential) (authn.Identity, error) {
	// An earlier review may have ended since the caller looked.
	if id, ok := r.cache.get(key, r.cfg.Now()); ok {
		return id, nil
	}
	free, ok := r.slots.take(ctx, c.Peer)
	if !ok {
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "too many reviews are already in progress: %d in total and %d of one peer are allowed", MaxInFlight, r.cfg.OfPeer)
	}
	defer free()
	r.mu.Lock()
	f.reviewing = true
	r.mu.Unlock()
	id, err := r.review(ctx, c.Token)
	if err != nil {
		return authn.Identity{}, err // and cached for no one
	}
	r.cache.put(key, id, r.until(id), r.cfg.Now())
	return id, nil
}
