package identities

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// refusedFor is how long a verifier's refusal of a token is the answer.
	refusedFor = 10 * time.Second
	// maxRefused bounds the refusals that are remembered.
	maxRefused = 10_000
)

// checks holds the verifications in flight: one per token, few at once.
type checks struct {
	slots chan struct{}

	mu        sync.Mutex
	running   map[fingerprint]*check
	refused   map[fingerprint]refusal
	swept     time.Time // when refusals were last forgotten
	strangers strangers
}

// check is one verification; claim and err are set before done is closed.
type check struct {
	by    process
	known bool // the token was refused lately, and counts already
	tried bool // it counts as tried
	done  chan struct{}
	claim Claim
	err   error
}

// refusal counts against its process for refusalKept, and is the answer for refusedFor.
type refusal struct {
	err error
	by  process
	at  time.Time
}

func newChecks(l Limits) *checks {
	return &checks{
		slots: make(chan struct{}, l.InFlight), running: map[fingerprint]*check{}, refused: map[fingerprint]refusal{},
		strangers: newStrangers(l),
	}
}

// verify returns the owner of a token that the process brings. Streams with the same token
// share one verification, and a refusal is the answer for some seconds.
func (c *checks) verify(ctx context.Context, id Identify, by process, print fingerprint, token ca.Token) (Claim, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, id.Timeout, ca.Errorf(ca.Deadline, "the token could not be verified within %s", id.Timeout))
	defer cancel()
	k, err := c.start(by, print, func(k *check) {
		// Not ctx: others that wait for the same result may have more time.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), id.Timeout)
		defer cancel()
		k.claim, k.err = c.run(ctx, k, id.Verifier, token)
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
func (c *checks) start(by process, print fingerprint, run func(*check)) (*check, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(time.Now())
	r, known := c.refused[print]
	if known && time.Since(r.at) < refusedFor {
		return nil, r.err
	}
	if k := c.running[print]; k != nil {
		return k, nil
	}
	k := &check{by: by, known: known, done: make(chan struct{})}
	c.running[print] = k
	go func() {
		run(k)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, print)
		c.note(print, k)
		close(k.done)
	}()
	return k, nil
}

// run calls the verifier when the limits allow it and a slot is free. A verifier that
// ignores its context keeps its slot.
func (c *checks) run(ctx context.Context, k *check, v Verifier, token ca.Token) (Claim, error) {
	if err := c.admit(ctx, k); err != nil {
		return Claim{}, err
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Claim{}, c.crowded()
	}
	claim, err := v.Verify(ctx, token)
	if err != nil {
		return Claim{}, err
	}
	return claim, nil
}

func (c *checks) crowded() error { return limited("verifications at once", cap(c.slots)) }

// admit waits until one more refusal of the process' tokens would stay within the limits.
// It returns an error once refusals have reached them.
func (c *checks) admit(ctx context.Context, k *check) error {
	for {
		if ok, err := c.try(k); ok || err != nil {
			return err
		}
		select {
		case <-time.After(holdBack):
		case <-ctx.Done():
			return c.crowded()
		}
	}
}

// try reports whether the token may be verified now; an error means never.
func (c *checks) try(k *check) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.known {
		if err := c.strangers.closed(k.by); err != nil {
			return false, err
		}
		if c.strangers.busy(k.by) {
			return false, nil
		}
		k.tried = true
		c.strangers.addTrying(k.by, 1)
	}
	return true, nil
}

// note remembers how a verification ended; the caller holds the lock.
func (c *checks) note(print fingerprint, k *check) {
	if k.tried {
		c.strangers.addTrying(k.by, -1)
	}
	switch old, counted := c.refused[print]; {
	case k.err == nil:
		c.forget(print)
		c.strangers.succeeded(k.by)
	case !refuses(k.err):
	case counted:
		c.refused[print] = refusal{k.err, old.by, time.Now()}
	case len(c.refused) < maxRefused:
		c.refused[print] = refusal{k.err, k.by, time.Now()}
		c.strangers.addRefused(k.by, 1)
	}
}

// sweep forgets old refusals, once a second at most; the caller holds the lock.
func (c *checks) sweep(now time.Time) {
	if now.Sub(c.swept) < time.Second {
		return
	}
	c.swept = now
	for print, r := range c.refused {
		if now.Sub(r.at) >= refusalKept {
			c.forget(print)
		}
	}
}

func (c *checks) forget(print fingerprint) {
	if r, ok := c.refused[print]; ok {
		c.strangers.addRefused(r.by, -1)
		delete(c.refused, print)
	}
}
