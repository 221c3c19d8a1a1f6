package agent

import (
	"context"
	"log/slog"
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
)

// watchConfig calls reload at each of the hangups and whenever the content of a file changes,
// one at a time. The function that it returns ends that, and waits for a running reload.
func watchConfig(in *settings.Flags, hangups <-chan os.Signal, log *slog.Logger, reload func(context.Context)) (stop func()) {
	var changes <-chan struct{}
	unwatch := func() {}
	if files := in.Watched(); len(files) > 0 {
		watcher := filewatch.New(filewatch.Options{Log: log}, files...)
		changes, unwatch = watcher.C, watcher.Close
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wanted := in.Changed() // during the start
		for {
			if wanted {
				reload(ctx)
			}
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				wanted = true
			case <-changes:
				wanted = in.Changed()
			}
		}
	}()
	return func() {
		cancel()
		unwatch()
		<-done
	}
}
