package call

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Watched runs f, an outside call, on the goroutine of its caller, with a timeout. If f has not returned
// soon after its context ended, another goroutine calls late with the reason, once. Watched then
// returns when both have returned, and reports that its caller is too late: what late has done stands.
func Watched[T any](ctx context.Context, timeout time.Duration, late func(error), f func(context.Context) (T, error)) (value T, tooLate bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ca.Errorf(ca.Deadline, "no answer within %s", timeout))
	defer cancel()
	var decided atomic.Bool // f has returned in time, or late is called
	returned, settled := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-returned:
		case <-timer.C:
			if decided.CompareAndSwap(false, true) {
				defer close(settled)
				late(context.Cause(ctx))
			}
		}
	})
	defer stop()
	value, err = f(ctx)
	if !decided.CompareAndSwap(false, true) {
		<-settled
		var none T
		return none, true, context.Cause(ctx)
	}
	close(returned)
	return value, false, err
}
