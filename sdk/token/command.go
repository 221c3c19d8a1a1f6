package token

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	commandTimeout = 30 * time.Second
	// maxOutput has room for a token and the JSON around it.
	maxOutput = 2 * maxToken
	maxStderr = 4 << 10
)

// Command is a source that runs a program for each token, without a shell, in a
// process group of its own (where there are such) that is killed with it.
type Command struct {
	// Args are the program, an absolute path, and its arguments. Required.
	Args []string
	// Env is its whole environment, besides KUBERNETES_EXEC_INFO. Default: none.
	Env []string
	// Raw takes the output itself for the token. Default: the output is an
	// ExecCredential of client.authentication.k8s.io/v1, as kubectl's plugins print.
	Raw bool
	// Timeout ends the program. Default: 30 seconds.
	Timeout time.Duration
}

// execInfo is what client-go tells a plugin; no cluster is told of, as there is none.
const execInfo = `KUBERNETES_EXEC_INFO={"apiVersion":"` + execVersion + `","kind":"ExecCredential","spec":{"interactive":false}}`

// Token runs the program. An error is of the reason [ca.Unavailable], or
// [ca.Deadline]; it shows a part of what the program wrote to its standard error, in
// which all that may be a token is replaced.
func (c Command) Token(ctx context.Context) (ca.Bearer, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = commandTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := c.run(ctx)
	switch {
	case ctx.Err() != nil:
		return ca.Bearer{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "%s had no token after %s, and was ended", c, timeout)
	case err != nil:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s: %w", c, err)
	case c.Raw:
		return parse(output, c.String())
	}
	return parseExecCredential(output, c.String())
}

func (c Command) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stdout, stderr := &command.Head{Most: maxOutput, Full: cancel}, &command.Head{Most: maxStderr}
	program := command.Program{Args: c.Args, Env: append([]string{execInfo}, c.Env...), KillRest: true}
	err := program.Run(ctx, stdout, stderr)
	switch {
	case stdout.Over():
		return nil, fmt.Errorf("it wrote more than %d bytes", maxOutput)
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, said(stderr.Bytes(), stdout.Bytes()))
	}
	return stdout.Bytes(), nil
}

func (c Command) String() string { return "token command " + c.Args[0] }

// looksSecret is a word that may be a credential: nobody knows the token that a
// program which failed may have written to its standard error.
var looksSecret = regexp.MustCompile(`[A-Za-z0-9_~+/=.-]{32,}|eyJ[A-Za-z0-9_=.-]*`)

// said is what the program wrote to its standard error, for a text.
func said(stderr, stdout []byte) string {
	message := looksSecret.ReplaceAll(bytes.TrimSpace(stderr), []byte("(hidden)"))
	if len(message) == 0 {
		return ""
	}
	return ", and says: " + text.Redact(string(message), ca.Token(stdout))
}
