package providerkit

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log is one that tests read. It is safe for concurrent use.
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

// Logger writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Take returns what was logged since the last look.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Within bounds a test that would hang where the code does not give up.
func Within(tb testing.TB, limit time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	tb.Cleanup(cancel)
	return ctx
}
