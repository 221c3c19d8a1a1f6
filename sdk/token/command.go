package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"time"

	"github.com/countersign-dev/countersign/internal/foreign"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	commandTimeout = 30 * time.Second
	// maxOutput has room for a token and the JSON around it.
	maxOutput = 2 * maxToken
	maxStderr = 4 << 10
	// lingering is how long a process may hold the output that a command left behind.
	lingering = time.Second
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
	stdout, stderr := &bounded{most: maxOutput, full: cancel}, &bounded{most: maxStderr, full: func() {}}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...) //nolint:gosec // the operator's
	cmd.Env = append([]string{execInfo}, c.Env...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, lingering
	ownGroup(cmd)
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		endGroup(cmd) // it cannot have been reused: somebody in it holds the output
		err = errors.New("it left a process behind that holds its output")
	}
	switch {
	case stdout.over:
		return nil, fmt.Errorf("it wrote more than %d bytes", maxOutput)
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, stderr.said(stdout))
	}
	return stdout.buffer.Bytes(), nil
}

func (c Command) String() string { return "token command " + c.Args[0] }

// bounded is a program's output up to a size. What is more is dropped.
type bounded struct {
	buffer bytes.Buffer // not embedded: io.Copy would find its ReadFrom, which knows no bound
	most   int
	over   bool
	full   func() // called when there is more
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.buffer.Len()
	if len(p) <= room {
		return b.buffer.Write(p)
	}
	b.over = true
	b.full()
	b.buffer.Write(p[:room])
	return len(p), nil
}

// looksSecret is a word that may be a credential: nobody knows the token that a
// program which failed may have written to its standard error.
var looksSecret = regexp.MustCompile(`[A-Za-z0-9_~+/=.-]{32,}|eyJ[A-Za-z0-9_=.-]*`)

func (b *bounded) said(stdout *bounded) string {
	text := looksSecret.ReplaceAll(bytes.TrimSpace(b.buffer.Bytes()), []byte("(hidden)"))
	if len(text) == 0 {
		return ""
	}
	return ", and says: " + foreign.Clean(string(text), ca.Token(stdout.buffer.String()))
}
