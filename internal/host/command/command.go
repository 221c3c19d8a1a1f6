// Package command runs a program that the operator configured: without a shell, with only
// the given environment, in a separate process group that is killed at the deadline. Call
// [Program.RunLogged] to log its output, [Program.Output] to take a credential that it
// prints, or [Program.Run] with a [Head] to capture it. Token sources, references to secrets,
// outputs and health checks call it. It keeps no state.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// lastWords is how long to read its output after its end: a child that it left behind may
// hold the pipe open.
const lastWords = 500 * time.Millisecond

// ErrLeftBehind is returned by Run if the program exited with 0 but a process that it
// started holds its output open. The output may be incomplete.
var ErrLeftBehind = errors.New("left a process running that holds its output open")

// Program is a program to run.
type Program struct {
	Args []string // the program and its arguments. Required
	Env  []string // its complete environment. Default: empty
	// KillRest kills the processes that it left behind, whether or not they hold its output. Default:
	// they keep running, as one that reloads a server may start it.
	KillRest bool
}

// MinimalEnv returns the few variables of an environment that a program needs. The others may hold
// tokens.
func MinimalEnv(lookUp func(name string) (value string, ok bool)) (env []string) {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, ok := lookUp(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Run returns nil if the program exited with 0. When ctx ends, it kills the process group.
// Both writers may be the same.
func (p Program) Run(ctx context.Context, stdout, stderr io.Writer) error {
	// On Linux the parent-death signal is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...) //nolint:gosec // the operator configured it
	cmd.Env = append([]string{}, p.Env...)                    // nil would be our own
	cmd.SysProcAttr = OwnGroup()
	cmd.Cancel = func() error { KillGroup(cmd.Process); return nil }
	left, err := p.run(cmd, stdout, stderr)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%.256q timed out and was killed: %w", p.Args[0], ctx.Err())
	case err != nil:
		return fmt.Errorf("%.256q failed: %w", p.Args[0], errno.Explain(err))
	case left:
		return ErrLeftBehind
	}
	return nil
}

// run reports whether the program left a process behind that holds its output open.
func (p Program) run(cmd *exec.Cmd, stdout, stderr io.Writer) (left bool, err error) {
	out, err := newOutputs(cmd, stdout, stderr)
	if err != nil {
		return false, err
	}
	err = cmd.Start()
	out.closeChild()
	if err != nil {
		out.close()
		return false, err
	}
	out.start()
	unreaped := AwaitExit(cmd.Process.Pid) // until it is reaped, no other group can have its id
	if !unreaped {
		err = cmd.Wait()
	}
	if left = out.end(); p.KillRest && (unreaped || left) {
		KillGroup(cmd.Process)
	}
	if unreaped {
		err = cmd.Wait()
	}
	out.close()
	return left, err
}

// Head keeps the beginning of what is written to it.
type Head struct {
	Most int    // bytes to keep
	Full func() // called when there is more. Default: nothing

	text []byte
	over bool
}

// Write accepts everything and keeps what fits.
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

// Over reports whether there was more.
func (h *Head) Over() bool { return h.over }
