package wire

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// The limits of a stream of calls, in bytes but for the first. What is larger goes by CSRSign.
const (
	maxCalls  = 256 // in flight, as many as a host makes at once
	maxCall   = 16 << 10
	maxAnswer = small
	fullBatch = 256 << 10 // of one message that is sent
	maxBatch  = 512 << 10 // of one that is received
)

// outbox sends what is put into it: what comes while a message is sent goes into the next one
// together. It sends at once, however little there is, and put never waits for the peer.
type outbox[T proto.Message] struct {
	wake chan struct{}

	mu      sync.Mutex
	waiting []T
}

func newOutbox[T proto.Message]() *outbox[T] {
	return &outbox[T]{wake: make(chan struct{}, 1)}
}

func (o *outbox[T]) put(one T) {
	o.mu.Lock()
	o.waiting = append(o.waiting, one)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default: // it is awake
	}
}

// take returns what fits into a message.
func (o *outbox[T]) take() (batch []T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := 0
	for n, one := range o.waiting {
		if size += proto.Size(one); size > fullBatch && n > 0 {
			batch, o.waiting = o.waiting[:n:n], o.waiting[n:]
			return batch
		}
	}
	batch, o.waiting = o.waiting, nil
	return batch
}

// run sends until ctx ends, or sending fails.
func (o *outbox[T]) run(ctx context.Context, send func(batch []T) error) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		if o.flush(send) != nil {
			return
		}
	}
}

func (o *outbox[T]) flush(send func(batch []T) error) error {
	for batch := o.take(); len(batch) > 0; batch = o.take() {
		if err := send(batch); err != nil {
			return err
		}
	}
	return nil
}
