// Package logtest collects what the code under test logs, or a process writes: [Log].
package logtest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log collects what is written to it. The zero value is empty. It is safe for concurrent
// use.
type Log struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // closed at the next write; nil without a waiter
}

// Write implements [io.Writer].
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return l.text.Write(text)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger returns a logger that writes text records of all levels to the log.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Await waits until the text is as it should be. After limit the test fails, and shows the
// log.
func (l *Log) Await(tb testing.TB, limit time.Duration, what string, is func(text string) bool) {
	tb.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		text, grown := l.look()
		if is(text) {
			return
		}
		select {
		case <-grown:
		case <-deadline.C:
			tb.Fatalf("%s was not logged within %s:\n%s", what, limit, l)
		}
	}
}

func (l *Log) look() (text string, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.text.String(), l.grown
}
