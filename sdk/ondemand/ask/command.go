package ask

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// refused is the exit code that means no, as grep's for a line that was not found.
const refused = 1

// Command runs a program for each name, without a shell and with the name as its last argument. It
// exits with 0 if the name may have a certificate, with 1 if not; any other end means that the answer
// is unknown. Where the system has process groups, the program gets its own, which is killed with it.
type Command struct {
	// Args are the program (an absolute path) and its first arguments. Required.
	Args []string
	// Env is the whole environment. Default: none.
	Env []string
	// Timeout limits the program's run time. Default: 5 seconds.
	Timeout time.Duration
}

// Allowed runs the program. An error has the reason [ca.Unavailable] or [ca.Deadline], and shows part
// of the program's standard error.
func (c Command) Allowed(ctx context.Context, name string) (bool, error) {
	if err := checkFolded(name); err != nil {
		return false, err
	}
	if len(c.Args) == 0 {
		return false, ca.Errorf(ca.Unavailable, "failed to ask a command: Args is required: name a program")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, defaultTimeout))
	defer cancel()
	args := append(append([]string{}, c.Args...), name)
	err := command.Program{Args: args, Env: c.Env, KillRest: true}.Discard(ctx)
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ca.Errorf(ca.ReasonFor(ctx.Err()), "failed to ask %q: it did not end in time, and was killed", c.Args[0])
	case exited && exit.ExitCode() == refused:
		return false, nil
	}
	return false, ca.Errorf(ca.Unavailable, "failed to ask: %s; exit with 0 for yes and with 1 for no", text.Clean(err.Error()))
}
