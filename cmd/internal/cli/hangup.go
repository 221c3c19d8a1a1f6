package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

const servesOn = "serves on after SIGHUP"

// ServeOn makes SIGHUP not end the command, which gets it from [Hangups].
func ServeOn(cmd *cobra.Command) { cmd.Annotations = map[string]string{servesOn: "yes"} }

type hangupsKey struct{}

// hangups are the SIGHUPs of a process, until release has SIGHUP end it again.
type hangups struct {
	caught  <-chan os.Signal
	release func()
}

// WithHangups returns a context from which [Hangups] returns a channel of the caller's: a test
// sends SIGHUPs to a command that it runs in its own process.
func WithHangups(ctx context.Context, caught <-chan os.Signal) context.Context {
	return context.WithValue(ctx, hangupsKey{}, hangups{caught, func() {}})
}

// Hangups returns each SIGHUP since [Main] began, for a command of [ServeOn].
func Hangups(ctx context.Context) <-chan os.Signal {
	h, _ := ctx.Value(hangupsKey{}).(hangups)
	return h.caught
}

// releaseHangups has SIGHUP end the process, as it does by default.
func releaseHangups(ctx context.Context) {
	if h, ok := ctx.Value(hangupsKey{}).(hangups); ok {
		h.release()
	}
}
