package output

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// passed lists the variables that a command gets; any other may hold a secret.
var passed = []string{"PATH", "HOME", "LANG", "TZ"}

// Command returns a Reload that runs a program by path, with these arguments and no shell.
// After timeout it kills the program and its children; processes left behind by a finished
// program keep running.
func Command(argv []string, timeout time.Duration) Reload {
	return func(ctx context.Context, log *slog.Logger) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		program := command.Program{Args: argv}
		for _, name := range passed {
			if value, ok := os.LookupEnv(name); ok {
				program.Env = append(program.Env, name+"="+value)
			}
		}
		return program.RunLogged(ctx, log)
	}
}
