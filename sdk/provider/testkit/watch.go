package testkit

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Watch is a call of WatchRoots that runs until the test ends.
type Watch struct {
	roots chan []byte
	ended chan error
	stop  context.CancelFunc
}

// WatchRoots begins to watch the roots of an authority.
func WatchRoots(tb testing.TB, of ca.RootWatcher) *Watch {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	w := &Watch{roots: make(chan []byte, 100), ended: make(chan error, 1), stop: cancel}
	go func() {
		defer close(w.ended)
		w.ended <- of.WatchRoots(ctx, func(roots []byte) error { w.roots <- roots; return nil })
	}()
	tb.Cleanup(func() {
		cancel()
		for range w.ended { // until it has ended
		}
	})
	return w
}

// Gets requires the next roots (PEM) within the limit, and that they are these.
func (w *Watch) Gets(tb testing.TB, limit time.Duration, want []byte) {
	tb.Helper()
	select {
	case got := <-w.roots:
		if !bytes.Equal(got, want) {
			tb.Fatalf("the roots are %s", got)
		}
	case err := <-w.ended:
		tb.Fatalf("the watch ended: %v", err)
	case <-time.After(limit):
		tb.Fatalf("no roots arrived in %s", limit)
	}
}

// Silent requires that the watch goes on for this time and that no roots arrive.
func (w *Watch) Silent(tb testing.TB, span time.Duration) {
	tb.Helper()
	select {
	case got := <-w.roots:
		tb.Fatalf("roots arrived: %s", got)
	case err := <-w.ended:
		tb.Fatalf("the watch ended: %v", err)
	case <-time.After(span):
	}
}

// Stop cancels the call.
func (w *Watch) Stop() { w.stop() }

// Ended waits for the end of the call, and returns its error.
func (w *Watch) Ended() error { return <-w.ended }
