// Package cli is the frame of a program with subcommands. [Root] is the program's root
// command, [Run] executes it and returns the exit code, [Wrong] marks an error that the
// operator fixes in the settings. It keeps no state; Run handles the process's signals.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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

// oneMoment is how long a repeated signal counts as the first one: "timeout" of GNU sends
// SIGTERM to its child and then to the process group, in which the child is, too.
const oneMoment = time.Second

// Run executes a [Root] command and returns the exit code. SIGINT and SIGTERM cancel the
// command's context; a second signal, not in the same moment, ends the process at once.
// hangups is of [CatchHangups].
func Run(hangups <-chan os.Signal, root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.WithValue(context.Background(), hangupsKey{}, hangups), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if cmd, _, err := root.Find(os.Args[1:]); err != nil || cmd.Annotations[servesOn] == "" {
		signal.Reset(syscall.SIGHUP)
	}
	context.AfterFunc(ctx, func() {
		first, again := time.Now(), make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		for range again {
			if time.Since(first) > oneMoment {
				os.Exit(ExitSignal)
			}
		}
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, root.Name()+":", errno.Explain(err))
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return ExitFailed
}
