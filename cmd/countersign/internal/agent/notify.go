package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// statusInterval is how often the service manager is sent a changed status. What is held also changes
// by time alone.
const statusInterval = 2 * time.Second

// notifyStatus keeps the line that "systemctl status" shows. The function that it returns ends that.
func notifyStatus(socket string, line func() string) (stop func()) {
	if socket == "" {
		return func() {}
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(statusInterval)
		defer ticker.Stop()
		for last := ""; ; {
			// A manager that misses one gets the next; the log has the facts.
			if now := line(); now != last && cli.Notify(socket, "STATUS="+now) == nil {
				last = now
			}
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
		}
	})
	return func() { close(ended); running.Wait() }
}

// statusLine says how much is held.
func statusLine(a *agent.Agent) string {
	if counts, ok := a.Identities(); ok {
		return fmt.Sprintf("%d of %d workloads have a certificate", counts.Held, counts.Identities)
	}
	held, all := 0, a.Status()
	for _, s := range all {
		if s.Held {
			held++
		}
	}
	return fmt.Sprintf("%d of %d secrets held", held, len(all))
}
