// Package command runs a program that the operator named to its end: without a
// shell, with no environment but the one it is given, in a process group of its own
// that is killed when the time is over. Call [Program.RunLogged] where its output is
// for people, else [Program.Run] with a [Head] or two.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"time"
)

// lastWords is how long its output is read on after its end: what it left behind
// may hold the pipe.
const lastWords = 500 * time.Millisecond

// ErrLeftBehind is what Run ends with where a program exited with 0 and a process that
// it started holds its output, so that it may not be whole.
var ErrLeftBehind = errors.New("left a process running that holds its output open")

// Program is what is run.
type Program struct {
	Args []string // the program and its arguments. Required
	Env  []string // its whole environment. Default: none
	// KillRest kills what it left behind. Default: that goes on.
	KillRest bool
}

// Run returns nil where the program exited with 0. At the end of ctx its process group
// is killed. The writers may be one and the same.
func (p Program) Run(ctx context.Context, stdout, stderr io.Writer) error {
	// Where there is a parent-death signal, it is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...) //nolint:gosec // the operator says what is run
	cmd.Env = append([]string{}, p.Env...)                    // nil would be all of ours
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr, cmd.WaitDelay = stdout, stderr, OwnGroup(), lastWords
	cmd.Cancel = func() error { KillGroup(cmd.Process); return nil }
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		if p.KillRest {
			KillGroup(cmd.Process) // its id is no other's: somebody in it holds the output
		}
		return ErrLeftBehind
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%.256q timed out and was killed: %w", p.Args[0], ctx.Err())
	case err != nil:
		return fmt.Errorf("%.256q failed: %w", p.Args[0], err)
	}
	return nil
}

// Head keeps the beginning of what is written to it.
type Head struct {
	Most int    // bytes that are kept
	Full func() // called when there is more. Default: nothing

	text []byte
	over bool
}

// Write takes all and keeps what fits.
func (h *Head) Write(b []byte) (int, error) {
	room := min(len(b), h.Most-len(h.text))
	h.text = append(h.text, b[:room]...)
	if room < len(b) && !h.over {
		h.over = true
		if h.Full != nil {
			h.Full()
		}
	}
	return len(b), nil
}

// Bytes returns what was kept.
func (h *Head) Bytes() []byte { return h.text }

// Over tells whether there was more.
func (h *Head) Over() bool { return h.over }
