package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const (
	keyTimeout = 30 * time.Second
	// lingering is how long a process may hold the output that a command left behind.
	lingering = time.Second
)

// noKey is the reason of a StateFailed that is this program's own.
const noKey = "key"

// errNoKey is a key that may be there at the next start.
var errNoKey = errors.New("there is no key")

// openState returns where secrets are kept over a restart; nil where they are not. A
// command that has no key today, as its vault may be away, too, must not keep the agent
// from starting.
func openState(ctx context.Context, c config.State, m *metrics, log *slog.Logger) (secret.Storage, error) {
	if c.Dir == "" {
		return nil, nil
	}
	key, err := stateKey(ctx, c)
	if errors.Is(err, errNoKey) {
		log.Warn("nothing is kept of this run, and nothing of the last one is used", "folder", c.Dir, "error", err)
		m.secret(secret.Event{Type: secret.StateFailed, Reason: noKey})
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
func printedKey(ctx context.Context, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the operator's
	cmd.Env, cmd.WaitDelay = commandEnv(nil), lingering
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(stdout, state.MaxKey+2))
	if len(text) > state.MaxKey+1 {
		cancel() // it would wait for somebody to read the rest
	}
	if err := errors.Join(err, cmd.Wait()); err != nil && len(text) <= state.MaxKey+1 {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	return state.TrimKey(text), nil
}
