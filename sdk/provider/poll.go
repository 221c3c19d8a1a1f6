package provider

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// leastPoll is the shortest interval of [PollRoots].
const leastPoll = time.Second

// PollRoots returns a [RootWatcher] for an authority whose roots can only be asked for.
// WatchRoots calls roots at once and then every interval, a second or more, which it varies by
// up to a tenth so that a fleet does not ask in step. It reports the first answer and each
// other set of certificates; their order does not matter. An error of roots ends the watch:
// the host watches again, with backoff. Embed the result in the authority's type:
//
//	type authority struct {
//		provider.RootWatcher
//		…
//	}
//
//	a.RootWatcher = provider.PollRoots(time.Minute, a.Roots)
func PollRoots(every time.Duration, roots func(ctx context.Context) ([]byte, error)) RootWatcher {
	return poller{max(every, leastPoll), roots}
}

type poller struct {
	every time.Duration
	roots func(ctx context.Context) ([]byte, error)
}

// WatchRoots implements [RootWatcher].
func (p poller) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	var last *pki.Bundle
	for {
		roots, err := p.roots(ctx)
		if err != nil {
			return err
		}
		now, _, err := pki.UsableCertificates(roots)
		if err != nil {
			return ca.Errorf(ca.Internal, "the authority's roots are invalid: %w", err)
		}
		if set := pki.NewBundle(now...); last == nil || !set.Equal(last) {
			if err := changed(roots); err != nil {
				return err
			}
			last = set
		}
		select {
		case <-time.After(p.every - p.every/10 + rand.N(p.every/5)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
