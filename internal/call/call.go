// Package call bounds the calls of foreign code, which may ignore its context: [Do].
package call

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// grace is how long a call may take to notice that its context has ended.
const grace = time.Second

// Turn is the right to make an outside call; one goroutine at a time has it.
type Turn chan struct{}

// NewTurn returns a free Turn.
func NewTurn() Turn { return make(Turn, 1) }

// Free reports whether no call has the turn.
func (t Turn) Free() bool { return len(t) == 0 }

// Do runs f, an outside call, with a timeout (zero: none) and returns soon after it. A
// client that ignores its context keeps its goroutine and the turn, so a hang costs one
// goroutine at most. Calls work again once the client returns.
func Do[T any](ctx context.Context, timeout time.Duration, t Turn, f func(context.Context) (T, error)) (T, error) {
	return In(ctx, func(job func()) { go job() }, timeout, t, f)
}

// In is Do with the job run by run.
func In[T any](ctx context.Context, run func(job func()), timeout time.Duration, t Turn, f func(context.Context) (T, error)) (T, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, ca.Errorf(ca.Deadline, "no answer within %s", timeout))
		defer cancel()
	}
	var none T
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return none, ca.Errorf(ca.ReasonFor(ctx.Err()), "the call before has not returned yet: %w", context.Cause(ctx))
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	run(func() {
		value, err := f(ctx)
		<-t
		done <- result{value, err}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // it may have finished at the last moment
		return r.value, r.err
	case <-time.After(grace):
		return none, context.Cause(ctx)
	}
}
