package identities

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// refusedFor is how long a verifier's refusal of a token is cached.
	refusedFor = 10 * time.Second
	// maxRefused bounds the cached refusals.
	maxRefused = 10_000
)

// checks holds the verifications in flight: one per token, few at once.
type checks struct {
	slots chan struct{}

	mu      *sync.Mutex
	running map[fingerprint]*check
	refused map[fingerprint]refusal
}

// check is one verification; claim and err are set before done is closed.
type check struct {
	done  chan struct{}
	claim Claim
	err   error
}

type refusal struct {
	err   error
	until time.Time
}

func newChecks(atOnce int) checks {
	return checks{
		slots: make(chan struct{}, atOnce), mu: new(sync.Mutex),
		running: map[fingerprint]*check{}, refused: map[fingerprint]refusal{},
	}
}

// verify returns the token's owner. Streams with the same token share one verification,
// and a refusal is cached for some seconds.
func (c checks) verify(ctx context.Context, id Identify, print fingerprint, token ca.Token) (Claim, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, id.Timeout, ca.Errorf(ca.Deadline, "the token could not be verified within %s", id.Timeout))
	defer cancel()
	k, err := c.start(print, func(k *check) {
		// Not ctx: others that wait for the same result may have more time.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), id.Timeout)
		defer cancel()
		k.claim, k.err = c.run(ctx, id.Verifier, token)
	})
	if err != nil {
		return Claim{}, err
	}
	select {
	case <-k.done:
		return k.claim, k.err
	case <-ctx.Done():
		return Claim{}, context.Cause(ctx)
	}
}

// start returns the verification of the token in flight, or a new one.
func (c checks) start(print fingerprint, run func(*check)) (*check, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.refused[print]; ok && time.Now().Before(r.until) {
		return nil, r.err
	}
	if k := c.running[print]; k != nil {
		return k, nil
	}
	k := &check{done: make(chan struct{})}
	c.running[print] = k
	go func() {
		run(k)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, print)
		c.note(print, k.err)
		close(k.done)
	}()
	return k, nil
}

// run calls the verifier when a slot is free. A verifier that ignores its context keeps
// its slot.
func (c checks) run(ctx context.Context, v Verifier, token ca.Token) (Claim, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Claim{}, ca.Errorf(ca.RateLimited, "the limit of verifications at once is reached: %d", cap(c.slots))
	}
	claim, err := v.Verify(ctx, token)
	if err != nil {
		return Claim{}, err
	}
	return claim, nil
}

// note caches a refusal; the caller holds the lock.
func (c checks) note(print fingerprint, err error) {
	delete(c.refused, print)
	switch ca.ReasonFor(err) {
	case ca.Unauthenticated, ca.Denied, ca.Invalid:
	default:
		return
	}
	now := time.Now()
	if len(c.refused) >= maxRefused {
		for other, r := range c.refused {
			if !now.Before(r.until) {
				delete(c.refused, other)
			}
		}
	}
	if len(c.refused) < maxRefused {
		c.refused[print] = refusal{err, now.Add(refusedFor)}
	}
}
