// Command countersign-discovery is the secret service of many clusters: gateways and
// sidecars get the secrets that they may have, and what else Envoy needs, over one
// authenticated stream. `countersign discovery` verifies it and runs it.
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
	exitSettings = 2 // a flag, setting or file is wrong; nothing was started
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
	fmt.Fprintln(os.Stderr, "countersign-discovery:", err)
	if _, ok := errors.AsType[settingsError](err); ok {
		return exitSettings
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "countersign-discovery", Short: "The secret service of many clusters: ADS and SDS for Envoys that it knows",
		Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return settingsError{fmt.Errorf("there is no command %.256q; see \"%s --help\"", args[0], cmd.CommandPath())}
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return settingsError{err} })
	root.AddCommand(serveCommand(), validateCommand(), explainCommand(), schemaCommand(), statusCommand(), versionCommand())
	return root
}

// noArgs refuses arguments as a wrong setting.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return settingsError{fmt.Errorf("%.256q is one argument too many: the command takes flags only", args[0])}
	}
	return nil
}
