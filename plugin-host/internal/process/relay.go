package process

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxLine   = 8 << 10 // of a provider's log, in bytes
	keptLines = 20      // of a crash report, and
	keptBytes = 512     // of each: text.Clean cuts them further
	maxAttrs  = 16      // of one record

	// So many lines a second are logged, beside 200 at the start; the number of dropped lines is
	// logged this often at most.
	linesPerSecond = 5
	noteEvery      = 10 * time.Second
	// crashLines are logged of a panic, however much came before: a stack of Go has no more
	// than 100 frames of two lines.
	crashLines = 300

	// While more is written than is logged, the relay pauses after so many lines or bytes:
	// to drop all that a flood brings would take more than half a core. The provider waits,
	// too.
	floodPause = 50 * time.Millisecond
	floodLines = 1000
	floodBytes = 512 << 10
)

// relay copies a provider's standard error to the host's log. All of it is untrusted:
// bounded, escaped, and parsed as a record only if it is one.
type relay struct {
	log   *slog.Logger
	ended <-chan struct{} // closed when the process has ended; what is left is read at once
	done  chan struct{}

	hidden  redact.Secrets // values to keep out of the log and the crash report
	bucket  loglimit.Bucket
	crash   int       // lines that are logged before it counts again
	dropped int       // lines since the last note
	noted   time.Time // when that was
	missed  int       // lines, or pieces of one, dropped since the last pause
	read    int       // bytes since then

	mu   sync.Mutex
	why  string // the first line of a Go panic; its stack follows
	last ring
}

func newRelay(log *slog.Logger, ended <-chan struct{}) *relay {
	return &relay{log: log, ended: ended, done: make(chan struct{}), bucket: loglimit.Bucket{PerSecond: linesPerSecond}}
}

// clean is [text.Redact] for what is hidden now.
func (r *relay) clean(line string) string {
	return text.Redact(line, r.hidden.Values()...)
}

// ring holds the last lines as they came: escaping each line of a flood would be dear.
type ring struct {
	lines [keptLines][]byte
	next  int
}

func (r *ring) add(line []byte) {
	slot := &r.lines[r.next%keptLines]
	*slot = append((*slot)[:0], line[:min(len(line), keptBytes)]...)
	r.next++
}

func (r *ring) all(clean func(string) string) []string {
	var lines []string
	for i := max(0, r.next-keptLines); i < r.next; i++ {
		lines = append(lines, clean(string(r.lines[i%keptLines])))
	}
	return lines
}

// run reads until the end.
func (r *relay) run(stderr io.Reader) {
	defer close(r.done)
	defer r.note(time.Time{})
	lines := bufio.NewReaderSize(slowed{stderr, r}, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			r.take(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // skip the rest of a line that is too long
			r.missed++
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// slowed is a reader that pauses in a flood.
type slowed struct {
	io.Reader
	of *relay
}

func (s slowed) Read(p []byte) (int, error) {
	r := s.of
	if r.missed >= floodLines || r.missed > 0 && r.read >= floodBytes {
		r.missed, r.read = 0, 0
		pause(r.ended)
	}
	n, err := s.Reader.Read(p)
	r.read += n
	return n, err
}

// pause waits for as long as a flood is not read, or until the process has ended.
func pause(ended <-chan struct{}) {
	select {
	case <-time.After(floodPause):
	case <-ended:
	}
}

// drain reads to the end, with a pause after each [floodBytes], and returns how much there was.
func drain(from io.Reader, ended <-chan struct{}) (all int64) {
	for {
		n, err := io.CopyN(io.Discard, from, floodBytes)
		if all += n; err != nil {
			return all
		}
		pause(ended)
	}
}

func (r *relay) take(line []byte) {
	if begins := r.keep(line); begins {
		r.crash = crashLines
	}
	now := time.Now()
	if !r.allow(now) {
		r.missed++
		r.dropped++
		return
	}
	if now.Sub(r.noted) >= noteEvery {
		r.note(now)
	}
	r.record(line)
}

func (r *relay) allow(now time.Time) (ok bool) {
	if r.crash > 0 {
		r.crash--
		return true
	}
	_, ok = r.bucket.Allow(now)
	return ok
}

// note logs how many lines were dropped, if any were.
func (r *relay) note(now time.Time) {
	if r.dropped > 0 {
		r.log.Warn("provider logs too fast, dropped lines", "lines", r.dropped)
		r.dropped, r.noted = 0, now
	}
}

var panics = [][]byte{[]byte("panic: "), []byte("fatal error: ")}

// keep adds a line to the crash report, and reports whether it begins one.
func (r *relay) keep(line []byte) (begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" && slices.ContainsFunc(panics, func(p []byte) bool { return bytes.HasPrefix(line, p) }) {
		r.why = r.clean(string(line))
		return true
	}
	r.last.add(line)
	return false
}

// record logs a line: hclog's JSON as a record, anything else as text.
func (r *relay) record(line []byte) {
	var fields map[string]any
	if line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		r.log.Info("provider output", "line", r.clean(string(line)))
		return
	}
	level, _ := fields["@level"].(string)
	message, _ := fields["@message"].(string)
	message = cmp.Or(message, "provider output")
	var attrs []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key[:min(1, len(key))] != "@" && len(attrs) < maxAttrs {
			attrs = append(attrs, slog.String(text.Clean(key), r.textOf(fields[key])))
		}
	}
	r.log.LogAttrs(context.Background(), levelOf(level), r.inOneLine(message), attrs...)
}

var lineEnds = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ")

// inOneLine is clean, but for line ends: slog escapes the backslash of an escape again.
func (r *relay) inOneLine(s string) string {
	return r.clean(lineEnds.Replace(strings.TrimSpace(s)))
}

func (r *relay) textOf(value any) string {
	if s, ok := value.(string); ok {
		return r.inOneLine(s)
	}
	encoded, _ := json.Marshal(value) // it came from JSON
	return r.clean(string(encoded))
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
		return r.last.all(r.clean)
	}
	return append([]string{r.why}, r.last.all(r.clean)...)
}
