package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const keyTimeout = 30 * time.Second

// errNoKey means that the key may be available at the next start.
var errNoKey = errors.New("no key")

// openState returns the storage that survives restarts; nil if there is none. A key command
// that fails, as its vault may be down too, must not keep the agent from starting.
func openState(ctx context.Context, env environ.Vars, c config.State, m *metrics.Metrics, log *slog.Logger) (secret.Storage, error) {
	if c.Dir == "" {
		return nil, nil
	}
	key, err := stateKey(ctx, env, c)
	if errors.Is(err, errNoKey) {
		log.Warn("no key for the kept state: not using the state of the last run, and keeping none", "folder", c.Dir, "error", err)
		failure := &secret.Failure{Reason: metrics.NoKey, Text: text.Clean(err.Error()), At: time.Now()}
		m.Secret(secret.Event{Kind: secret.StateFailed, Reason: metrics.NoKey, Failure: failure})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	folder, err := state.Open(c.Dir, key)
	if err != nil {
		return nil, fmt.Errorf("state.dir is %q: %w", c.Dir, err)
	}
	return kept{folder, key}, nil
}

// storageOf returns where the secrets survive a restart: the state, or without a folder for it the
// written outputs, whose keys are read back.
func storageOf(c config.Config, state secret.Storage, written []output.Config, secrets []secret.Spec) secret.Storage {
	if c.State.Dir != "" || c.Workloads.On() {
		return state
	}
	return output.NewStorage(written, func(pair string) []string {
		i := slices.IndexFunc(secrets, func(s secret.Spec) bool { return s.Name == pair && s.Kind == secret.KeyPair })
		if i < 0 {
			return nil
		}
		return secrets[i].Authorities
	})
}

// kept is the state with its key, which also seals the log of names on demand.
type kept struct {
	*state.Folder
	key []byte
}

// openNames returns where certificates on demand survive a restart; nil if storage, as openState returned
// it, keeps nothing. An agent without rules has it for those that a reload adds; without it, these keep
// nothing.
func openNames(storage secret.Storage, c config.Config, log *slog.Logger) (*state.Log, error) {
	folder, keeps := storage.(kept)
	if !keeps {
		return nil, nil
	}
	names, err := state.OpenLog(c.State.Dir, folder.key, log)
	switch {
	case err != nil && len(c.Rules()) == 0:
		log.Warn("certificates of rules that a reload adds will not be kept", "folder", c.State.Dir, "error", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("state.dir is %q: %w", c.State.Dir, err)
	}
	return names, nil
}

// openShared returns the folder that machines share. It may be away now.
func openShared(c config.Store, log *slog.Logger) (*state.Shared, error) {
	key, err := state.ReadKey(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("store.key_file: %w", err)
	}
	return state.OpenShared(c.Folder, key, log)
}

func stateKey(ctx context.Context, env environ.Vars, c config.State) ([]byte, error) {
	if c.KeyFile != "" {
		key, err := state.ReadKey(c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("state.key_file: %w", err)
		}
		return key, nil
	}
	key, err := printedKey(ctx, env, c.KeyCommand)
	if err == nil {
		err = state.CheckKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("state.key_command %s: %w", c.KeyCommand[0], err)
	}
	return key, nil
}

// printedKey runs a program that prints a key. Its standard error is dropped: it may hold the
// key.
func printedKey(ctx context.Context, env environ.Vars, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	out := &command.Head{Most: state.MaxKey + 2, Full: cancel} // longer output is not a key
	err := command.Program{Args: args, Env: wiring.CommandEnv(env), KillRest: true}.Run(ctx, out, io.Discard)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil && !out.Over():
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	return state.TrimKey(out.Bytes()), nil
}
