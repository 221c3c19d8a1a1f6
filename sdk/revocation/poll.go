package revocation

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	pollInterval = 5 * time.Minute
	pollTimeout  = 30 * time.Second
	pollLeast    = 10 * time.Second // near the end of a list
)

// Polled configures how to poll a CA for its lists.
type Polled struct {
	Source ca.RevocationSource
	// Interval is the time between two calls, give or take a tenth; it is less when a list
	// ends before the next but one. Default: 5 minutes, as for roots.
	Interval time.Duration
	// Timeout limits a call. Default: 30 s.
	Timeout time.Duration
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
}

// Poll returns the Follow of a [Feed] that asks a CA. After an error it waits as for any other
// call of that CA, by the table of package ca; a CA that hangs costs one goroutine.
func Poll(p Polled) func(ctx context.Context, take func(lists []byte, err error)) {
	p.Interval, p.Timeout = cmp.Or(p.Interval, pollInterval), cmp.Or(p.Timeout, pollTimeout)
	if p.Now == nil {
		p.Now = clock.Wall
	}
	turn := call.NewTurn()
	return func(ctx context.Context, take func(lists []byte, err error)) { p.follow(ctx, turn, take) }
}

func (p Polled) follow(ctx context.Context, turn call.Turn, take func(lists []byte, err error)) {
	var waits rotation.Waits
	began, ends := time.Now(), time.Time{} // of the lists that the CA returned
	for ctx.Err() == nil {
		lists, err := call.Do(ctx, p.Timeout, turn, p.Source.Revocations)
		if err == nil && len(lists) == 0 {
			err = ca.Errorf(ca.Internal, "the answer has no revocation list")
		}
		if ctx.Err() != nil {
			return
		}
		take(lists, err)
		var wait time.Duration
		if err == nil {
			waits.Reset()
			ends = endOf(lists)
			wait = p.next(ends.Sub(p.Now()))
		} else {
			wait = waits.After(err, time.Now(), max(0, ends.Sub(p.Now())), time.Since(began))
		}
		rotation.Sleep(ctx, wait, p.Now, nil)
	}
}

// endOf returns when the first of the lists ends; zero if they cannot be read.
func endOf(lists []byte) (ends time.Time) {
	all, _, _ := pki.ParseCRLs(lists) // take reports what is wrong with them
	for _, list := range all {
		ends = clock.First(ends, list.NextUpdate)
	}
	return ends
}

// next returns the wait after an answer: an expired list is of no use, so that one that ends soon is
// asked for in time.
func (p Polled) next(left time.Duration) time.Duration {
	wait := p.Interval - p.Interval/10 + rand.N(p.Interval/5+1)
	if left > 0 {
		wait = min(wait, max(left/2, pollLeast))
	}
	return wait
}
