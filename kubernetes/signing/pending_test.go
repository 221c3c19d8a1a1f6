package signing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// The watch may show our own write before the answer to it.
func TestWriteUnderWayOutlivesItsRequestForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, gone := context.WithCancel(t.Context())
		writing, cancel := signing.Linger(ctx)
		defer cancel()
		began := time.Now()
		gone()
		<-writing.Done()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}

func TestErrorDecidesWhenARequestComesBack(t *testing.T) {
	why := errors.New("away")
	for name, c := range map[string]struct {
		err   error
		least time.Duration
		level slog.Level
	}{
		"any":   {why, signing.RetryCall, slog.LevelWarn},
		"later": {fmt.Errorf("x: %w", &signing.PendingError{Again: time.Minute, Err: why}), time.Minute, slog.LevelWarn},
		"quiet": {&signing.PendingError{Again: time.Hour, Err: why, Quiet: true}, time.Hour, slog.LevelDebug},
	} {
		if again, level := signing.Pending(c.err); again < c.least || again > c.least*3/2 || level != c.level {
			t.Errorf("%s: %s, %s", name, again, level)
		}
	}
}
