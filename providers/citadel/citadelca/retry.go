package citadelca

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxTries takes about two seconds. The host needs to know of longer outages, for its log
	// and its own backoff.
	maxTries  = 5
	firstWait = 100 * time.Millisecond
)

// passing are the codes of temporary errors.
var passing = []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.DeadlineExceeded}

// retry calls attempt until it succeeds, fails permanently, or the next try would be after the
// context's deadline. It returns the error of the last attempt.
func retry[T any](ctx context.Context, attempt func() (T, error)) (T, error) {
	waits := &backoff.ExponentialBackOff{InitialInterval: firstWait, Multiplier: 2, RandomizationFactor: 0.2, MaxInterval: time.Minute}
	for tries := 1; ; tries++ {
		out, err := attempt()
		if err == nil || tries == maxTries || !mayPass(err) || !sleep(ctx, waits.NextBackOff()) {
			return out, err
		}
	}
}

// sleep returns false if ctx ends first: at once if its deadline is before that.
func sleep(ctx context.Context, wait time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func mayPass(err error) bool {
	st, ok := status.FromError(err)
	if !ok || !slices.Contains(passing, st.Code()) {
		return false
	}
	// The host honors a retry delay that the authority asks for.
	said := slices.ContainsFunc(st.Details(), func(detail any) bool { _, ok := detail.(*errdetails.RetryInfo); return ok })
	return !said
}
