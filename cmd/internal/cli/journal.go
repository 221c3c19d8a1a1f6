package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// priorities are those of sd-daemon(3), by which the journal takes a line for an error or a warning.
var priorities = map[slog.Level]string{slog.LevelError: "<3>", slog.LevelWarn: "<4>", slog.LevelInfo: "<6>", slog.LevelDebug: "<7>"}

func priority(level slog.Level) string {
	for _, least := range []slog.Level{slog.LevelError, slog.LevelWarn, slog.LevelInfo} {
		if level >= least {
			return priorities[least]
		}
	}
	return priorities[slog.LevelDebug]
}

// Complain writes a text for people, each line with the priority if w goes to the journal.
func Complain(w io.Writer, level slog.Level, text string) {
	if toJournal(w) {
		mark := priority(level)
		text = mark + strings.ReplaceAll(text, "\n", "\n"+mark)
	}
	fmt.Fprintln(w, text)
}

// journal writes records with their priority: it has a handler for each.
type journal map[string]slog.Handler

func newJournal(w io.Writer, handler func(w io.Writer) slog.Handler) journal {
	j := journal{}
	for _, mark := range priorities {
		j[mark] = handler(marked{w, mark})
	}
	return j
}

// Enabled implements [slog.Handler].
func (j journal) Enabled(ctx context.Context, level slog.Level) bool {
	return j[priority(level)].Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	return j[priority(r.Level)].Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (j journal) WithGroup(name string) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (j journal) each(change func(slog.Handler) slog.Handler) journal {
	changed := make(journal, len(j))
	for mark, handler := range j {
		changed[mark] = change(handler)
	}
	return changed
}

// marked begins each record with a priority. A handler writes a record at once.
type marked struct {
	w    io.Writer
	mark string
}

// Write implements [io.Writer].
func (m marked) Write(record []byte) (int, error) {
	n, err := m.w.Write(append([]byte(m.mark), record...))
	return max(0, n-len(m.mark)), err
}

// toJournal reports whether w is the stream to the journal that JOURNAL_STREAM names by its device
// and inode; see systemd.exec(5). A stream that was redirected is another.
func toJournal(w io.Writer) bool {
	file, ok := w.(*os.File)
	named := os.Getenv("JOURNAL_STREAM")
	if !ok || named == "" {
		return false
	}
	stream, ok := streamOf(file)
	return ok && stream == named
}
