package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// IO are the standard streams of a program.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Program is a whole program as a function. It runs the command that args name, until that ends
// or ctx does, and returns the exit code. Signals are the business of [Main].
type Program func(ctx context.Context, args []string, env environ.Vars, streams IO) int

// oneMoment is how long a repeated signal counts as the first one: "timeout" of GNU sends
// SIGTERM to its child and then to the process group, in which the child is, too.
const oneMoment = time.Second

// Main runs a program as this process and returns the exit code. It is the first thing that main
// does: until then, SIGHUP ends the process. SIGINT and SIGTERM cancel the program's context; a
// second signal, not in the same moment, ends the process at once.
func Main(run Program) int {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	ctx := context.WithValue(context.Background(), hangupsKey{}, hangups{caught, func() { signal.Reset(syscall.SIGHUP) }})
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, exitOnNextSignal)
	return run(ctx, os.Args[1:], os.Environ(), IO{os.Stdin, os.Stdout, os.Stderr})
}

func exitOnNextSignal() {
	first, again := time.Now(), make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	for range again {
		if time.Since(first) > oneMoment {
			os.Exit(ExitSignal)
		}
	}
}
