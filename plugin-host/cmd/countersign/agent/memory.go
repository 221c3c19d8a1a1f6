package agent

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// returnMemory gives the system back what only the start needed, once, when every
// secret is held: an idle agent makes too little garbage for the runtime to do so. The
// function that it returns ends the wait.
func returnMemory(a *agent.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if awaitSecrets(ctx, a) == nil {
			debug.FreeOSMemory()
		}
	})
	return func() { cancel(); waiting.Wait() }
}

// awaitSecrets returns when every secret is held, or ctx ends.
func awaitSecrets(ctx context.Context, a *agent.Agent) error {
	for _, name := range a.Ready() {
		// Any other error is that the name is not there for everybody; it is not waited for.
		if _, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, name); ctx.Err() != nil {
			return err
		}
	}
	return nil
}
