// Package memory bounds what others make this process hold. A [Budget] is a number of bytes that
// concurrent calls share: [Budget.Take] waits for some, and [Budget.Share] keeps one holder from
// taking all. [Process] is the budget of this process, and [SetLimit] has the garbage collector
// keep to the memory that the system grants. No goroutine; all is safe for concurrent use.
package memory

import (
	"context"
	"sync"
)

// Budget is a number of bytes. Those who wait for some get them in turn.
type Budget struct {
	of   *Budget // that it is a share of; nil: none
	most int64

	mu      sync.Mutex
	used    int64
	waiting []*waiter
}

type waiter struct {
	want  int64
	ready chan struct{} // closed once it has what it wants
}

// New returns a budget of so many bytes.
func New(most int64) *Budget { return &Budget{most: most} }

// Most returns how many bytes it has.
func (b *Budget) Most() int64 { return b.most }

// Share returns a budget of half as much, though at least one claim of so many bytes, whose bytes
// are also taken from b.
func (b *Budget) Share(claim int64) *Budget {
	return &Budget{of: b, most: max(min(claim, b.most), b.most/2)}
}

// Take waits for so many bytes, or for as many as there are at all, until ctx ends.
func (b *Budget) Take(ctx context.Context, bytes int64) (*Claim, error) {
	bytes = min(bytes, b.most)
	if err := b.take(ctx, bytes); err != nil {
		return nil, err
	}
	if b.of != nil {
		if err := b.of.take(ctx, bytes); err != nil {
			b.free(bytes)
			return nil, err
		}
	}
	return &Claim{budget: b, bytes: bytes}, nil
}

func (b *Budget) take(ctx context.Context, bytes int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+bytes <= b.most {
		b.used += bytes
		b.mu.Unlock()
		return nil
	}
	w := &waiter{bytes, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		b.giveUp(w)
		return context.Cause(ctx)
	}
}

// giveUp takes a waiter out, which may have got its bytes at the last moment.
func (b *Budget) giveUp(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.admit()
			return
		}
	}
	b.used -= w.want
	b.admit()
}

func (b *Budget) free(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	b.admit()
}

// admit serves those whose turn it is. The caller holds the lock.
func (b *Budget) admit() {
	for len(b.waiting) > 0 && b.used+b.waiting[0].want <= b.most {
		w := b.waiting[0]
		b.waiting[0], b.waiting = nil, b.waiting[1:]
		b.used += w.want
		close(w.ready)
	}
}

// Claim is what was taken of a [Budget].
type Claim struct {
	budget *Budget

	mu    sync.Mutex
	bytes int64
}

// Shrink gives back all but so many bytes.
func (c *Claim) Shrink(bytes int64) {
	c.mu.Lock()
	excess := c.bytes - bytes
	if excess > 0 {
		c.bytes = bytes
	}
	c.mu.Unlock()
	for b := c.budget; b != nil && excess > 0; b = b.of {
		b.free(excess)
	}
}

// Release gives back all.
func (c *Claim) Release() { c.Shrink(0) }
