package testkit

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log collects what a provider, a host or an agent writes. The zero value is empty. It is
// safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Logger returns a logger that writes text records of all levels to the log.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Take returns what was written since the last call, and clears it.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Within returns a context that ends with the test, or after limit. It bounds a test that
// would hang if the code under test did not give up.
func Within(tb testing.TB, limit time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	tb.Cleanup(cancel)
	return ctx
}
