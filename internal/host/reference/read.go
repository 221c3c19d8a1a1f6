package reference

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// MaxSecret bounds the value of a reference in bytes.
const MaxSecret = 64 << 10

// errUnset does not change while the program runs.
var errUnset = errors.New("it is not set in the program's environment, or empty")

// IsSet reports whether lookup finds a variable that is not empty.
func IsSet(name string, lookup func(name string) (value string, ok bool)) bool {
	value, _ := lookup(name)
	return strings.TrimRight(value, "\r\n") != ""
}

// read returns the value. The error names neither the source nor the value.
func (r reference) read(ctx context.Context, opts Options) (string, error) {
	value, err := r.raw(ctx, opts)
	if err != nil {
		return "", err
	}
	value = strings.TrimRight(value, "\r\n") // editors and echo add it
	switch {
	case value == "":
		return "", errors.New("it is empty")
	case len(value) > MaxSecret:
		return "", fmt.Errorf("it has more than %d bytes", MaxSecret)
	case !utf8.ValidString(value) || strings.Contains(value, "\x00"):
		return "", errors.New("it is not UTF-8 text")
	}
	return value, nil
}

func (r reference) raw(ctx context.Context, opts Options) (string, error) {
	switch {
	case r.file != "":
		content, err := safefile.Read(r.file, MaxSecret)
		return string(content), err
	case r.env != "":
		if !IsSet(r.env, opts.LookupEnv) {
			return "", errUnset
		}
		value, _ := opts.LookupEnv(r.env)
		return value, nil
	}
	program := command.Program{Args: r.command, Env: opts.CommandEnv, KillRest: true}
	output, err := program.Output(ctx, MaxSecret)
	return string(output), err
}
