package cli

import (
	"io"
	"log/slog"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// NewLog returns the log of a program, in the format json or text. Errors of the operating system
// are extended by what to change.
func NewLog(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: explain}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
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
