package cli

import (
	"io"
	"log/slog"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// NewLog returns the log of a program, in the format json or text. Errors of the operating system
// are extended by what to change. If w goes to systemd's journal, each record has its priority there,
// and no time in the format text: the journal has its own.
func NewLog(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	inJournal := toJournal(w)
	handler := func(w io.Writer) slog.Handler {
		opts := &slog.HandlerOptions{Level: level, ReplaceAttr: explain}
		if format == "json" {
			return slog.NewJSONHandler(w, opts)
		}
		if inJournal {
			opts.ReplaceAttr = timeless
		}
		return slog.NewTextHandler(w, opts)
	}
	if inJournal {
		return slog.New(newJournal(w, handler))
	}
	return slog.New(handler(w))
}

// timeless is explain without the record's time.
func timeless(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return explain(groups, a)
}

func explain(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.AnyValue(errno.Explain(err))
	}
	return a
}

// fewFiles is less than an agent with a few providers and connections needs.
const fewFiles = 256

// WarnSystem logs what this system lacks, before its absence shows as other faults.
func WarnSystem(log *slog.Logger) {
	if err := errno.NoProc(); err != nil {
		log.Warn("providers cannot be started, nor programs be signalled", "error", err)
	}
	if n := errno.OpenFiles(); n > 0 && n < fewFiles {
		log.Warn("few files may be open at once: connections will be refused and providers not started; raise LimitNOFILE of systemd, or ulimit -n", "limit", n, "want", fewFiles)
	}
}
