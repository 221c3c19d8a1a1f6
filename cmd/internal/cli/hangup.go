package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// CatchHangups is the first thing that main does: until then, SIGHUP ends the process.
func CatchHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

const servesOn = "serves on after SIGHUP"

// ServeOn makes SIGHUP not end the command, which gets it from [Hangups].
func ServeOn(cmd *cobra.Command) { cmd.Annotations = map[string]string{servesOn: "yes"} }

type hangupsKey struct{}

// Hangups returns each SIGHUP since [CatchHangups], for a command of [ServeOn].
func Hangups(ctx context.Context) <-chan os.Signal {
	hangups, _ := ctx.Value(hangupsKey{}).(<-chan os.Signal)
	return hangups
}
