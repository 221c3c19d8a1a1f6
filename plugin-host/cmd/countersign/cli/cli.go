// Package cli is the frame of a program with commands: [Root] is above them all,
// [Run] runs it and returns what the process exits with, [Wrong] is an error that the
// operator mends in his settings.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// What the process exits with.
const (
	ExitFailed   = 1 // it did not work
	ExitSettings = 2 // a flag, variable, setting or file is wrong; nothing was started
	ExitSignal   = 130
)

// Error is one that says what the process exits with.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Wrong is an error that the operator mends in his settings.
func Wrong(err error) error { return &Error{ExitSettings, err} }

// Run runs a [Root] until it ends or a signal ends it, and returns what the process
// exits with. The second signal ends the process at once.
func Run(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		// The first signal drains; the next one ends at once.
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		os.Exit(ExitSignal)
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, root.Name()+":", err)
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return ExitFailed
}
