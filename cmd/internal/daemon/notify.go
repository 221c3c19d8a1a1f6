package daemon

import (
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// NotifyReady notifies systemd that the daemon serves. What it waits for meanwhile, such as an API server
// that is away, is in /readyz: a unit that waited for it would be started again and again.
func NotifyReady(env environ.Vars, log *slog.Logger) {
	if err := cli.Notify(env.Get("NOTIFY_SOCKET"), "READY=1"); err != nil {
		log.Warn("failed to notify the service manager that the service is ready", "error", err)
	}
}
