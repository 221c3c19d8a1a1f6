package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const maxStderr = 4 << 10

// Output runs a program that prints a credential, and returns what it printed: most bytes at
// most. The error has the beginning of its standard error without what may be a credential.
func (p Program) Output(ctx context.Context, most int) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stdout, stderr := &Head{Most: most, Full: cancel}, &Head{Most: maxStderr}
	err := p.Run(ctx, stdout, stderr)
	switch {
	case stdout.Over():
		return nil, fmt.Errorf("it wrote more than %d bytes", most)
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, said(stderr.Bytes(), stdout.Bytes()))
	}
	return stdout.Bytes(), nil
}

// looksSecret matches words that may be a credential, as a failed program may have written
// one to its standard error.
var looksSecret = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[A-Za-z0-9_~+/=.-]{32,}|eyJ[A-Za-z0-9_=.-]*`)
})

// said formats the program's standard error for an error text.
func said(stderr, stdout []byte) string {
	message := looksSecret().ReplaceAll(bytes.TrimSpace(stderr), []byte("(hidden)"))
	if len(message) == 0 {
		return ""
	}
	return ", and says: " + text.Redact(string(message), ca.Token(stdout))
}

// Discard runs a program whose exit code is the result. The error has the beginning of its standard
// error without what may be a credential. It ignores a process that the program left behind.
func (p Program) Discard(ctx context.Context) error {
	stderr := &Head{Most: maxStderr}
	err := p.Run(ctx, io.Discard, stderr)
	if err == nil || errors.Is(err, ErrLeftBehind) {
		return nil
	}
	return fmt.Errorf("%w%s", err, said(stderr.Bytes(), nil))
}
