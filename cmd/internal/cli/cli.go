// Package cli is the frame of a program with subcommands. [Main] runs a [Program] as this
// process and handles its signals, [Root] makes the program's root command, [Execute] executes
// it and returns the exit code, [Wrong] marks an error that the operator fixes in the settings.
package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// Exit codes.
const (
	ExitFailed   = 1 // it failed at run time
	ExitSettings = 2 // a flag, variable, setting or file is wrong; nothing was started
	ExitSignal   = 130
)

// Error carries an exit code.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Wrong marks an error that the operator fixes in the settings.
func Wrong(err error) error { return &Error{ExitSettings, err} }

// Execute executes a [Root] command with arguments and streams, and returns the exit code of the
// program. Without a [ServeOn] command, SIGHUP ends the process from here on.
func Execute(ctx context.Context, root *cobra.Command, args []string, streams IO) int {
	if cmd, _, err := root.Find(args); err != nil || cmd.Annotations[servesOn] == "" {
		releaseHangups(ctx)
	}
	root.SetArgs(slices.Concat([]string{}, args)) // with nil, cobra takes the process's
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	Complain(streams.Err, slog.LevelError, root.Name()+": "+errno.Explain(err).Error())
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return ExitFailed
}
