package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// slice is the time between two looks at what is waited for.
const slice = 5 * time.Millisecond

// until waits for something, for d, and tells whether it came. It looks three times at least:
// where the machine stands still, d is over with one look.
func until(d time.Duration, done func() bool) bool {
	begin := time.Now()
	for looks := 0; looks < 3 || time.Since(begin) < d; looks++ {
		if done() {
			return true
		}
		time.Sleep(slice)
	}
	return done()
}

// inTime waits for something, for d and as long as the likes of it take from begin to end at this
// moment. So the provider has had its turn however busy the machine is.
func inTime(d time.Duration, likes func(), done func() bool) bool {
	if until(d, done) {
		return true
	}
	likes()
	return until(0, done)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// prompt lets a provider try three times: a busy machine is not its fault.
func prompt(do func() error) error {
	var err error
	for range 3 {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

// twice tries a few times, and returns an error that comes a second time. It is for tries of
// which some tell nothing.
func twice(do func() error) error {
	failed := false
	for range 5 {
		err := do()
		if err != nil && failed {
			return err
		}
		failed = failed || err != nil
	}
	return nil
}

// sending makes one call, that everything is ready for.
type sending func(ctx context.Context) error

// together makes n calls at once, and returns the first error. What takes a while is done by
// prepare; only when all are prepared are they sent.
func together(ctx context.Context, n int, prepare func() (sending, error)) error {
	errs := make([]error, n)
	var prepared, all sync.WaitGroup
	prepared.Add(n)
	for i := range n {
		all.Go(func() {
			send, err := prepare()
			prepared.Done()
			if prepared.Wait(); err == nil {
				err = send(ctx)
			}
			errs[i] = err
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("number %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}
