// Package background runs the loops that programs have beside their main one.
package background

import (
	"context"
	"sync"
)

// Run calls run in a goroutine. The function that it returns cancels the context of run and waits
// until run returns; later calls of it do nothing.
func Run(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { run(ctx) })
	return func() {
		cancel()
		loop.Wait()
	}
}
