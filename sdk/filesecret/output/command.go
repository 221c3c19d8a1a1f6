package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// maxCommandOutput bounds what of a command's output is logged.
const maxCommandOutput = 4 << 10

// passed are the variables that a command gets; all others may hold secrets.
var passed = []string{"PATH", "HOME", "LANG", "TZ"}

// Command returns a Reload that runs a program, found by its path, with these
// arguments and no shell. It and its children are killed after timeout.
func Command(argv []string, timeout time.Duration) Reload {
	return func(ctx context.Context, log *slog.Logger) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the operator's own
		output := &bounded{}
		cmd.Stdout, cmd.Stderr = output, output
		cmd.Env = []string{}
		for _, name := range passed {
			if value, ok := os.LookupEnv(name); ok {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
		}
		ownGroup(cmd)
		cmd.WaitDelay = time.Second // a child of its own may hold the pipe
		err := cmd.Run()
		for line := range strings.Lines(output.text.String()) {
			log.Info("output of the command", "command", argv[0], "line", clip(strings.TrimRight(line, "\r\n")))
		}
		switch {
		case errors.Is(err, exec.ErrWaitDelay): // it ended well; a child of its own goes on
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("the command %q took longer than %s and was killed", argv[0], timeout)
		case err != nil:
			return fmt.Errorf("the command %q: %w", argv[0], err)
		}
		return nil
	}
}

// bounded keeps the beginning of what is written.
type bounded struct{ text bytes.Buffer }

func (b *bounded) Write(text []byte) (int, error) {
	if room := maxCommandOutput - b.text.Len(); room > 0 {
		b.text.Write(text[:min(room, len(text))])
	}
	return len(text), nil
}

// clip makes text that others wrote fit for a log.
func clip(text string) string {
	const most = 256
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
