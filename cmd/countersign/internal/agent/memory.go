package agent

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// firstAnswers is how long the proxies' first answers have the processor for themselves. Returning
// memory takes several milliseconds of two cores.
const firstAnswers = time.Second

// returnMemory returns the memory of the start to the system once every secret is held and has been
// for firstAnswers. The function that it returns ends the wait.
func returnMemory(a *agent.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if awaitSecrets(ctx, a) != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstAnswers):
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
