package command

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxOutput = 16 << 10 // bytes of a command's output; the rest is discarded
	maxLines  = 20       // logged lines
)

// FailedError is a program's failure with the last line that it wrote. The line is not part of
// the text, which stays the same from one failure to the next.
type FailedError struct {
	Err  error
	Said string // cut and escaped; empty: nothing
}

// Error implements error.
func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Err }

// RunLogged is Run that logs both outputs line by line, cut and escaped. A process that the
// program leaves behind is not an error: it may be a daemon. An error is a [*FailedError].
func (p Program) RunLogged(ctx context.Context, log *slog.Logger) error {
	out := &Head{Most: maxOutput}
	err := p.Run(ctx, out, out)
	n, said := 0, ""
	for line := range strings.Lines(string(out.Bytes())) {
		line = text.Clean(strings.TrimSpace(line))
		if n++; n <= maxLines {
			log.Info("command output", "command", p.Args[0], "line", line)
		}
		said = cmp.Or(line, said)
	}
	if err == nil || errors.Is(err, ErrLeftBehind) {
		return nil
	}
	return &FailedError{err, said}
}
