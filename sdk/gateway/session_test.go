package gateway

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestStreamFailurePrefersServiceReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, own := errors.New("permission denied"), ca.Errorf(ca.Internal, "another type")
		broken := make(chan error, 1)
		if got := new(session).reason(broken, io.EOF); !errors.Is(got, io.EOF) { // it says nothing
			t.Errorf("got %v", got)
		}
		broken <- said
		if got := new(session).reason(broken, own); !errors.Is(got, own) || len(broken) != 1 {
			t.Errorf("got %v", got)
		}
		if got := new(session).reason(broken, io.EOF); !errors.Is(got, said) {
			t.Errorf("got %v", got)
		}
	})
}

func TestBackoffDoublesWithJitter(t *testing.T) {
	for failures, whole := range map[int]time.Duration{0: minWait, 1: 2 * minWait, 3: 8 * minWait, 6: maxWait, 20: maxWait, 1000: maxWait} {
		least, most := whole, time.Duration(0)
		for range 1000 {
			wait := backoff(failures)
			least, most = min(least, wait), max(most, wait)
		}
		if least < whole/2 || most >= whole || most-least < whole/4 {
			t.Errorf("after %d failures: from %s to %s, want from %s to %s", failures, least, most, whole/2, whole)
		}
	}
}
