package signing

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// RetryCall is how long a request waits after a failed call of the API server.
	RetryCall = 5 * time.Second
	// RetryGone is how long it waits for what is not there.
	RetryGone = time.Minute
	// lingers is how long a write may last once it has no reader.
	lingers = time.Second
)

// PendingError is an error that leaves a request pending.
type PendingError struct {
	// Again is how long it waits.
	Again time.Duration
	// Err is the reason.
	Err error
	// Quiet means that the error is logged elsewhere.
	Quiet bool
}

func (l *PendingError) Error() string { return l.Err.Error() }

func (l *PendingError) Unwrap() error { return l.Err }

// Pending returns how long a request waits after an error that leaves it pending, a [*PendingError] or
// another, and the level to log that at.
func Pending(err error) (again time.Duration, level slog.Level) {
	l, ok := errors.AsType[*PendingError](err)
	switch {
	case !ok:
		return Spread(RetryCall), slog.LevelWarn
	case l.Quiet:
		return l.Again, slog.LevelDebug
	}
	return l.Again, slog.LevelWarn
}

// Linger returns a context that outlives ctx by a second: the watch may show our own write, which
// ends the work on the request, before the API server's answer is here. The caller must call
// the function.
func Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		Sleep(longer, lingers)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// Sleep waits, or returns when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
