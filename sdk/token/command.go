package token

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	commandTimeout = 30 * time.Second
	// maxOutput leaves room for a token and the JSON around it.
	maxOutput = 2 * maxToken
)

// Command is a source that runs a program for each token, without a shell. Output that begins
// with a brace is an ExecCredential of client.authentication.k8s.io/v1, as kubectl's plugins
// print; all else is the token itself. Where the
// system has process groups, the program gets its own, which is killed with it.
type Command struct {
	// Args are the program (an absolute path) and its arguments. Required.
	Args []string
	// Env is the whole environment, except for KUBERNETES_EXEC_INFO. Default: none.
	Env []string
	// Timeout limits the program's run time. Default: 30 seconds.
	Timeout time.Duration
}

// execInfo is what client-go passes to a plugin, without a cluster.
const execInfo = `KUBERNETES_EXEC_INFO={"apiVersion":"` + execVersion + `","kind":"ExecCredential","spec":{"interactive":false}}`

// Token runs the program. The error's reason is [ca.Unavailable] or [ca.Deadline]. It
// shows part of the program's standard error with anything that may be a token redacted.
func (c Command) Token(ctx context.Context) (ca.Bearer, error) {
	if len(c.Args) == 0 {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s: Args is required: name a program", c)
	}
	timeout := cmp.Or(c.Timeout, commandTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := c.run(ctx)
	switch {
	case ctx.Err() != nil:
		return ca.Bearer{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "%s had no token after %s, and was ended", c, timeout)
	case err != nil:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s: %w", c, err)
	case bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")):
		return parseExecCredential(output, c.String())
	}
	return parse(output, c.String()+" printed a token that")
}

func (c Command) run(ctx context.Context) ([]byte, error) {
	program := command.Program{Args: c.Args, Env: append([]string{execInfo}, c.Env...), KillRest: true}
	return program.Output(ctx, maxOutput)
}

func (c Command) String() string {
	if len(c.Args) == 0 {
		return "token command"
	}
	return "token command " + c.Args[0]
}
