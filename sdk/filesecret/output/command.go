package output

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// passed are the variables that a command gets; all others may hold secrets.
var passed = []string{"PATH", "HOME", "LANG", "TZ"}

// Command returns a Reload that runs a program, found by its path, with these
// arguments and no shell. It and its children are killed after timeout; what it leaves
// behind when it has ended goes on.
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
