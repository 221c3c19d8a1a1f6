package pluginhost

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// PROTOCOL.md says when a host asks whether a provider is ready: never while it is.
func TestReadyIsAskedAfterConfigureAlone(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		f := w.lives[0]
		for range 60 {
			time.Sleep(time.Minute)
			w.mustSign(t, "fine")
		}
		if readied, configured := f.readied.Load(), f.configured.Load(); readied != 1 || configured != 1 {
			t.Errorf("in an hour, Ready was called %d times and Configure %d times", readied, configured)
		}
	})
}

// Many calls may find at once that the provider has lost its settings.
func TestConfigureCallsDoNotOverlap(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		f := w.lives[0]
		f.forgot.Store(true)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				if _, err := w.p.CSRSign(context.Background(), ca.SignRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if configured, overlapped := f.configured.Load(), f.overlapped.Load(); configured != 2 || overlapped != 0 {
			t.Errorf("%d calls of Configure, %d overlapped", configured, overlapped)
		}
	})
}
