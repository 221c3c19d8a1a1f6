package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const (
	maxOutput = 16 << 10 // of a command, in bytes; the rest is thrown away
	maxLines  = 20       // of it that are logged
	// lastWords is how long its output is read on after its end: what it left behind
	// may hold the pipe.
	lastWords = 500 * time.Millisecond
)

// command is a program that is run to its end, without a shell.
type command struct{ argv, env []string }

// commander runs commands and logs what they write.
type commander struct{ log *slog.Logger }

// run returns nil where it exited with 0. At the end of ctx its process group is
// killed.
func (c commander) run(ctx context.Context, what command) error {
	// The parent-death signal is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out head
	cmd := exec.CommandContext(ctx, what.argv[0], what.argv[1:]...) //nolint:gosec // the operator says what is run
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = what.env, &out, &out, attributes()
	cmd.Cancel = func() error { killGroup(cmd.Process); return nil }
	cmd.WaitDelay = lastWords
	err := cmd.Run()
	c.tell(what.argv[0], out.text)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%.256q did not end in time and was killed", what.argv[0])
	}
	return fmt.Errorf("%.256q failed: %w", what.argv[0], err)
}

func (c commander) tell(program string, text []byte) {
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; n > maxLines {
			return
		}
		c.log.Info("a command wrote", "command", program, "line", wire.CleanText(strings.TrimSpace(line), ""))
	}
}

// head keeps the beginning of what is written.
type head struct{ text []byte }

func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxOutput-len(h.text))]...)
	return len(b), nil
}
