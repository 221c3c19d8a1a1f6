package record

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	// recent is how long a value is used: strangers' requests must not become as many of an API server.
	recent = 2 * time.Second
	// again is the time between calls while they fail. Each may keep all requests waiting for askTimeout.
	again      = 20 * time.Second
	askTimeout = 5 * time.Second
)

// Recent is a value that another server has, which is asked for it at most every two seconds, and only
// if there is a request. The zero value is ready, and it is safe for concurrent use.
type Recent[T any] struct {
	mu    sync.Mutex
	until time.Time // monotonic: value and err are used until then
	value T
	err   error
	held  bool // there is a value
}

// Get returns the value, which ask returns if it is time. While ask fails, which Get logs, it returns the
// error and the last value; the zero value if there is none. ask must return soon after its context has
// ended.
func (r *Recent[T]) Get(ctx context.Context, log *slog.Logger, ask func(context.Context) (T, error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.value, r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	value, err := ask(ctx)
	if err == nil {
		r.value, r.err, r.held, r.until = value, nil, true, time.Now().Add(recent)
		return value, nil
	}
	log.Warn("failed to read what replicas publish as the bundle", "error", text.Clean(err.Error()), "kept", r.held)
	r.err, r.until = err, time.Now().Add(again)
	return r.value, r.err
}
