// Package filewatch (for authors of providers) notifies a provider when files that its settings
// name may have changed: written in place, replaced, removed and made again, or reached through
// another link. Compare the content to see what changed.
package filewatch

import (
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
)

// Options configure [Watch]. The zero value is useful.
type Options struct {
	// Poll is the time between two signals without any event: network and overlay file
	// systems do not always send events. Default: 10 seconds.
	Poll time.Duration
	// PollOnly turns events off. Default: false.
	PollOnly bool
	// Log gets a warning where the system has no events left. Default: [slog.Default].
	Log *slog.Logger
}

// Watch watches files, which need not exist; a path that ends in a separator stands for all
// files of that folder. It sends on changed when it is time to read them. Changes within
// 100 ms are one signal, and signals that are not received are merged. Read the files after
// Watch returns to miss nothing. A goroutine watches until stop is called; stop waits for it
// and may be called more than once. changed is never closed.
func Watch(opts Options, paths ...string) (changed <-chan struct{}, stop func()) {
	w := filewatch.New(filewatch.Options{Poll: opts.Poll, NoEvents: opts.PollOnly, Log: opts.Log}, paths...)
	return w.C, w.Close
}
