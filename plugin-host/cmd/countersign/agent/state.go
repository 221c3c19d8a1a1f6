package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/metrics"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/wiring"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const keyTimeout = 30 * time.Second

// errNoKey is a key that may be there at the next start.
var errNoKey = errors.New("there is no key")

// openState returns where secrets are kept over a restart; nil where they are not. A
// command that has no key today, as its vault may be away, too, must not keep the agent
// from starting.
func openState(ctx context.Context, c config.State, m *metrics.Metrics, log *slog.Logger) (secret.Storage, error) {
	if c.Dir == "" {
		return nil, nil
	}
	key, err := stateKey(ctx, c)
	if errors.Is(err, errNoKey) {
		log.Warn("nothing is kept of this run, and nothing of the last one is used", "folder", c.Dir, "error", err)
		m.Secret(secret.Event{Type: secret.StateFailed, Reason: metrics.NoKey})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	folder, err := state.Open(c.Dir, key)
	if err != nil {
		return nil, fmt.Errorf("state.dir is %q: %w", c.Dir, err)
	}
	return folder, nil
}

func stateKey(ctx context.Context, c config.State) ([]byte, error) {
	if c.KeyFile != "" {
		key, err := state.ReadKey(c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("state.key_file: %w", err)
		}
		return key, nil
	}
	key, err := printedKey(ctx, c.KeyCommand)
	if err == nil {
		err = state.CheckKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("state.key_command %s: %w", c.KeyCommand[0], err)
	}
	return key, nil
}

// printedKey runs a program that prints a key. What it writes to its standard error
// is not repeated: it may be the key.
func printedKey(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	out := &command.Head{Most: state.MaxKey + 2, Full: cancel} // more is no key, whatever follows
	err := command.Program{Args: args, Env: wiring.CommandEnv(nil), KillRest: true}.Run(ctx, out, io.Discard)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil && !out.Over():
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	return state.TrimKey(out.Bytes()), nil
}
