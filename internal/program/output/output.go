// Package output keeps the end of what a provider writes to standard error, for a command that
// runs it and has to say why it failed: give a [Tail] to the host as Options.Stderr, and print
// [Tail.Since] below the error. All of it is foreign: bounded and escaped.
package output

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxKept  = 256 << 10 // bytes
	maxLines = 10        // without a panic
	maxStack = 200       // lines, from a panic on
)

// Tail keeps the last 256 KiB that are written to it. The zero value is ready for use, and safe
// for concurrent use.
type Tail struct {
	mu   sync.Mutex
	text []byte
	size int // of all that was written
}

// Write implements [io.Writer]. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size += len(b)
	t.text = append(t.text, b[max(0, len(b)-maxKept):]...)
	if len(t.text) > 2*maxKept { // seldom, as it copies
		t.text = slices.Clone(t.text[len(t.text)-maxKept:])
	}
	return len(b), nil
}

// Mark returns a position for [Tail.Since]: the number of bytes written so far.
func (t *Tail) Mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

// Since returns what was written after a mark: its last ten lines or, if there was a panic, the
// lines from there on, 200 at most. Records of hclog become text, a stack in them lines of its
// own. hide removes what must not be shown.
func (t *Tail) Since(mark int, hide func(string) string) []string {
	t.mu.Lock()
	kept := t.text[max(0, len(t.text)-max(0, t.size-mark)):]
	written := string(kept[max(0, len(kept)-maxKept):])
	t.mu.Unlock()
	var lines []string
	panicked := -1
	for line := range strings.Lines(written) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		more, stack := readable([]byte(line))
		if panicked < 0 && (stack || isPanic(line)) {
			panicked = len(lines)
		}
		for _, one := range more {
			lines = append(lines, text.Clean(hide(strings.ReplaceAll(one, "\t", "    "))))
		}
	}
	if panicked >= 0 {
		return lines[panicked:min(len(lines), panicked+maxStack)]
	}
	return lines[max(0, len(lines)-maxLines):]
}

func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "Traceback (most recent call last)")
}

// readable returns a line as it is, or a record of hclog as text. stack means that it has a stack.
func readable(line []byte) (lines []string, stack bool) {
	record, ok := parse(bytes.TrimSpace(line))
	if !ok {
		return []string{string(line)}, false
	}
	return record.lines()
}
