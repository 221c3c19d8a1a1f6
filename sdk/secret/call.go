package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// grace is how long a call may take to notice that its context has ended.
const grace = time.Second

// turn is the right to make an outside call; one goroutine at a time has it.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// call runs f, an outside call, with a timeout (zero: none) and returns soon after it. A
// client that ignores its context keeps its goroutine and the turn, so a hang costs one
// goroutine at most. Calls work again once the client returns.
func call[T any](ctx context.Context, timeout time.Duration, t turn, f func(context.Context) (T, error)) (T, error) {
	return callIn(ctx, func(job func()) { go job() }, timeout, t, f)
}

// callIn is call with the job run by run.
func callIn[T any](ctx context.Context, run func(job func()), timeout time.Duration, t turn, f func(context.Context) (T, error)) (T, error) {
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
