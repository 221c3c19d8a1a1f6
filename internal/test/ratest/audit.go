package ratest

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"testing"
)

// Audit is an audit log in memory. Its fields are set before it is used, or by [Audit.Set].
type Audit struct {
	mu     sync.Mutex
	text   bytes.Buffer
	synced int
	syncs  int

	Err  error         // of Write
	Tear bool          // half of a line is written then
	Hang chan struct{} // Write waits until it is closed
}

// Set changes fields while it is in use.
func (a *Audit) Set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// Hangs has writes wait until the channel is closed.
func (a *Audit) Hangs() (until chan struct{}) {
	until = make(chan struct{})
	a.Set(func() { a.Hang = until })
	return until
}

// Write implements [io.Writer].
func (a *Audit) Write(line []byte) (int, error) {
	a.mu.Lock()
	hang := a.Hang
	a.mu.Unlock()
	if hang != nil {
		<-hang
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.Err != nil && a.Tear:
		n, _ := a.text.Write(line[:len(line)/2])
		return n, a.Err
	case a.Err != nil:
		return 0, a.Err
	}
	return a.text.Write(line)
}

// Sync implements the engine's log.
func (a *Audit) Sync() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.synced = a.text.Len()
	a.syncs++
	return nil
}

// Syncs counts them.
func (a *Audit) Syncs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.syncs
}

// String is what was written.
func (a *Audit) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// Lines returns the lines of an event. All that is written must be synced.
func (a *Audit) Lines(tb testing.TB, event string) (found []map[string]any) {
	tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.synced != a.text.Len() {
		tb.Error("lines are written and not synced")
	}
	for line := range bytes.Lines(a.text.Bytes()) {
		var one map[string]any
		if err := json.Unmarshal(line, &one); err != nil {
			tb.Errorf("line %q: %v", line, err)
		}
		if one["event"] == event {
			found = append(found, one)
		}
	}
	return found
}

// Refusals counts those that the lines stand for. The engine must be closed, which writes the last.
func (a *Audit) Refusals(tb testing.TB) (n int) {
	tb.Helper()
	for _, line := range a.Lines(tb, "refused") {
		n += int(line["count"].(float64))
	}
	return n
}

// Discard is an audit log that keeps nothing.
type Discard struct{ io.Writer }

// NoAudit costs nothing.
var NoAudit = Discard{io.Discard}

// Sync implements the engine's log.
func (Discard) Sync() error { return nil }
