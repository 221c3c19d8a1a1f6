package command

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxOutput = 16 << 10 // of a command, in bytes; the rest is thrown away
	maxLines  = 20       // of it that are logged
)

// RunLogged is Run with both outputs in the log, a line each, cut and escaped. What a
// program leaves behind is no failure: daemons do so.
func (p Program) RunLogged(ctx context.Context, log *slog.Logger) error {
	out := &Head{Most: maxOutput}
	err := p.Run(ctx, out, out)
	n := 0
	for line := range strings.Lines(string(out.Bytes())) {
		if n++; n > maxLines {
			break
		}
		log.Info("command output", "command", p.Args[0], "line", text.Clean(strings.TrimSpace(line)))
	}
	if errors.Is(err, ErrLeftBehind) {
		return nil
	}
	return err
}
