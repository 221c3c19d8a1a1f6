// Command countersign gets certificates from any certificate authority and keeps
// them fresh in any proxy or program: `countersign agent` serves them over SDS,
// `countersign secrets watch` shows what is served.
package main

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
	exitFailed   = 1 // it did not work
	exitSettings = 2 // a flag, variable, setting or file is wrong; nothing was started
	exitSignal   = 130
)

// settingsError is one that the operator mends in his settings.
type settingsError struct{ error }

func (e settingsError) Unwrap() error { return e.error }

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		// The first signal drains; the next one ends at once.
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		os.Exit(exitSignal)
	})
	err := rootCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "countersign:", err)
	if ended, ok := errors.AsType[proxyEndedError](err); ok {
		return ended.code
	}
	if ended, ok := errors.AsType[programEndedError](err); ok {
		return ended.ExitCode()
	}
	if _, ok := errors.AsType[settingsError](err); ok {
		return exitSettings
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := group("countersign", "Certificates from any CA, kept fresh in any proxy or program",
		agentCommand(), configCommand(), secretsCommand(), providerCommand(), discoveryCommand(), versionCommand())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return settingsError{err} })
	return root
}

// noArgs refuses arguments as a wrong setting.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return settingsError{fmt.Errorf("%.256q is one argument too many: the command takes flags only", args[0])}
	}
	return nil
}

// group makes a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return settingsError{fmt.Errorf("there is no command %.256q; see \"%s --help\"", args[0], cmd.CommandPath())}
		}
		return cmd.Help()
	}}
	cmd.AddCommand(below...)
	return cmd
}
