package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

// reloadTimeout is how long new providers may take to get ready.
const reloadTimeout = time.Minute

// reloader takes a changed configuration over, as far as a running agent can.
type reloader struct {
	reread    func() (config.Config, error)
	running   config.Config
	providers *providers
	log       *slog.Logger
}

// watchReload calls reload at each SIGHUP, one after the other. The function that it
// returns ends that, and returns when no reload is under way.
func watchReload(reload func(context.Context)) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-hangups:
				reload(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		<-done
	}
}

// reload reads the configuration again. A wrong one changes nothing.
func (r reloader) reload(ctx context.Context) {
	c, err := r.reread()
	if err != nil {
		r.log.Error("the configuration was not taken over", "error", err)
		return
	}
	if names := config.NeedRestart(r.running, c); len(names) > 0 {
		r.log.Warn("these settings have changed and need a restart of the agent", "settings", strings.Join(names, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := r.providers.reload(ctx, c); err != nil {
		r.log.Error("the configuration was not taken over whole; what is named goes on as it was", "error", err)
		return
	}
	r.log.Info("the configuration was read again")
}
