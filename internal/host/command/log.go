package command

import (
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

// RunLogged is Run that logs both outputs line by line, cut and escaped. A process that the
// program leaves behind is not an error: it may be a daemon.
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
