package memory

import (
	"context"
	"sync"
)

type keeperKey struct{}

// claims holds the claims of calls whose replies are still being read.
type claims struct {
	mu     sync.Mutex
	over   bool
	claims []*Claim
}

// Keep returns a context for calls whose replies outlive them: what a reply takes is given back
// by done, as the caller still examines it when the call has returned.
func Keep(ctx context.Context) (_ context.Context, done func()) {
	k := &claims{}
	return context.WithValue(ctx, keeperKey{}, k), k.done
}

func (k *claims) done() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	for _, c := range k.claims {
		c.Release()
	}
	k.claims = nil
}

func (k *claims) add(c *Claim) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.claims = append(k.claims, c)
	}
	return !k.over
}

// Returned shrinks the claim of a call that has returned to what its reply takes. It releases it
// unless [Keep] made the context.
func (c *Claim) Returned(ctx context.Context, bytes int64) {
	c.Shrink(bytes)
	if k, ok := ctx.Value(keeperKey{}).(*claims); !ok || !k.add(c) {
		c.Release()
	}
}
