package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxLine    = 8 << 10 // of a provider's log, in bytes
	keptLines  = 20      // of a crash report
	linesBurst = 200     // that are logged at once, and
	linesASec  = 50      // how many more for each second after
	maxAttrs   = 16      // of one record
)

// relay copies a provider's standard error to the host's log. All of it is untrusted:
// bounded, escaped, and parsed as a record only if it is one.
type relay struct {
	log  *slog.Logger
	done chan struct{}

	mu   sync.Mutex
	why  string // the first line of a Go panic; its stack follows
	last []string

	tokens  float64
	filled  time.Time
	dropped int
}

func newRelay(log *slog.Logger) *relay {
	return &relay{log: log, done: make(chan struct{}), tokens: linesBurst, filled: time.Now()}
}

// run reads until the end.
func (r *relay) run(stderr io.Reader) {
	defer close(r.done)
	lines := bufio.NewReaderSize(stderr, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			r.take(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // skip the rest of a line that is too long
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) take(line []byte) {
	r.keep(text.Clean(string(line)))
	if !r.allowed(time.Now()) {
		r.dropped++
		return
	}
	if r.dropped > 0 {
		r.log.Warn("provider logs too fast, dropped lines", "lines", r.dropped)
		r.dropped = 0
	}
	r.record(line)
}

// keep adds a line to the crash report.
func (r *relay) keep(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		r.why = line
		return
	}
	r.last = append(r.last, line)
	r.last = r.last[max(0, len(r.last)-keptLines):]
}

// allowed is a token bucket that refills at linesASec.
func (r *relay) allowed(now time.Time) bool {
	r.tokens = min(linesBurst, r.tokens+linesASec*now.Sub(r.filled).Seconds())
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// record logs a line: hclog's JSON as a record, anything else as text.
func (r *relay) record(line []byte) {
	var fields map[string]any
	if line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		r.log.Info("provider output", "line", text.Clean(string(line)))
		return
	}
	level, _ := fields["@level"].(string)
	message, _ := fields["@message"].(string)
	if message == "" {
		message = "provider output"
	}
	var attrs []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key[:min(1, len(key))] != "@" && len(attrs) < maxAttrs {
			attrs = append(attrs, slog.String(text.Clean(key), textOf(fields[key])))
		}
	}
	r.log.LogAttrs(context.Background(), levelOf(level), text.Clean(message), attrs...)
}

func textOf(value any) string {
	if s, ok := value.(string); ok {
		return text.Clean(s)
	}
	encoded, _ := json.Marshal(value) // it came from JSON
	return text.Clean(string(encoded))
}

func levelOf(name string) slog.Level {
	switch name {
	case "trace", "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// lines returns the crash report: the panic, if any, and the last lines.
func (r *relay) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		return slices.Clone(r.last)
	}
	return append([]string{r.why}, r.last...)
}
