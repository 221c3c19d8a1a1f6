package agent

import (
	"context"
	"sync"

	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// returnMemory returns the memory of the start to the system when every secret is held. The
// function that it returns ends the wait.
func returnMemory(a *agent.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if awaitSecrets(ctx, a) == nil {
			memory.Return()
		}
	})
	return func() { cancel(); waiting.Wait() }
}

// awaitSecrets returns when every secret is held, or ctx ends.
func awaitSecrets(ctx context.Context, a *agent.Agent) error {
	for _, name := range a.Ready() {
		// Other errors mean that not every caller may have the name; do not wait for it.
		if _, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, name); ctx.Err() != nil {
			return err
		}
	}
	return nil
}
