package secret

import "context"

// worker is the goroutine that owns what an authority or a leaf has. Others hand it what to do.
type worker struct {
	ctx    context.Context // ends with the owner
	cancel context.CancelFunc
	inbox  chan func()
}

func newWorker(parent context.Context) worker {
	ctx, cancel := context.WithCancel(parent)
	return worker{ctx, cancel, make(chan func())}
}

// do runs f in the goroutine and returns when f is done. It does nothing once the worker has ended.
func (w *worker) do(f func()) { w.hand(w.inbox, f) }

// hand is do for another channel that the goroutine reads.
func (w *worker) hand(to chan<- func(), f func()) {
	done := make(chan struct{})
	select {
	case to <- func() { defer close(done); f() }:
		<-done
	case <-w.ctx.Done():
	}
}
