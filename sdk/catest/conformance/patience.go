package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// slice is the polling interval.
const slice = 5 * time.Millisecond

// until polls done for d and reports whether it became true. It polls at least three times, as
// on a stalled machine d can pass between two polls.
func until(d time.Duration, done func() bool) bool {
	begin := time.Now()
	for polls := 0; polls < 3 || time.Since(begin) < d; polls++ {
		if done() {
			return true
		}
		time.Sleep(slice)
	}
	return done()
}

// inTime is until, followed by a control: a comparable operation from start to finish. The
// busier the machine, the longer that takes, and the more time the provider has.
func inTime(d time.Duration, control func(), done func() bool) bool {
	if until(d, done) {
		return true
	}
	control()
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

// prompt allows three attempts, as a busy machine can delay one.
func prompt(do func() error) error {
	var err error
	for range 3 {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

// thrice makes eight attempts and returns an error once three have failed. It is for attempts
// that can pass without showing anything.
func thrice(do func() error) error {
	failed := 0
	for range 8 {
		err := do()
		if err == nil {
			continue
		}
		if failed++; failed == 3 {
			return err
		}
	}
	return nil
}

// sending makes one call that has been prepared.
type sending func(ctx context.Context) error

// together makes n calls at once and returns the first error. It prepares all of them before
// it sends one, so that slow preparation does not spread them out.
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
