// Package outputs writes secrets to files, as configured. The agent calls [Configs], which
// validates, and [Write], which keeps the files up to date in one goroutine per output.
package outputs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Configs converts and validates the outputs of the configuration.
func Configs(c config.Config, observe func(output.Event), log *slog.Logger) ([]output.Config, error) {
	var all []output.Config
	var errs []error
	for _, entry := range c.Outputs {
		cfg, err := configOf(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("outputs.%s: %w", entry.Name, err))
		}
		cfg.Observe, cfg.Log = observe, log
		if cfg.SPIFFE {
			cfg.Federated = c.WorkloadAPI.Federated
		}
		all = append(all, cfg)
	}
	return all, errors.Join(errs...)
}

// Described lists the configuration's outputs, for the status page.
func Described(c config.Config) []status.Output {
	var all []status.Output
	for _, o := range c.Outputs {
		tells := ""
		switch {
		case len(o.Reload.Command) > 0:
			tells = o.Reload.Command[0] // an argument may be a credential
		case o.Reload.Signal != "":
			tells = "SIG" + o.Reload.Signal + " to the process in " + o.Reload.PIDFile
		}
		all = append(all, status.Output{Name: o.Name, Folder: o.Place(), Tells: text.Clean(tells)})
	}
	return all
}

func configOf(entry config.Output) (output.Config, error) {
	cfg := entry.Config()
	var errs [3]error
	cfg.UID, errs[0] = userID(entry.Owner)
	cfg.GID, errs[1] = groupID(entry.Group)
	if file := entry.PasswordFile; file != "" {
		cfg.Password = func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimRight(string(text), "\r\n"), err
		}
	}
	cfg.Reload, errs[2] = reloadOf(entry.Reload)
	return cfg, errors.Join(errs[:]...)
}

// reloadTimeout is when a command that reloads is killed.
const reloadTimeout = 30 * time.Second

func reloadOf(r config.Reload) (output.Reload, error) {
	switch {
	case len(r.Command) > 0:
		return output.Command(r.Command, reloadTimeout), nil
	case r.Signal == "":
		return nil, nil
	}
	uid, err := userID(r.User)
	if err != nil {
		return nil, err
	}
	process := output.Process{PIDFile: r.PIDFile, Executable: r.Executable, UID: os.Getuid()}
	if uid != nil {
		process.UID = *uid
	}
	signal, ok := signals[r.Signal]
	if !ok {
		return nil, fmt.Errorf("the signal %s cannot be sent on this system; use a command", r.Signal)
	}
	return output.Signal(process, signal), nil
}

// userID returns nil for no name.
func userID(name string) (*int, error) {
	return lookUp("user", name, func() (string, error) {
		found, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return found.Uid, nil
	})
}

func groupID(name string) (*int, error) {
	return lookUp("group", name, func() (string, error) {
		found, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return found.Gid, nil
	})
}

func lookUp(what, name string, find func() (string, error)) (*int, error) {
	if name == "" {
		return nil, nil
	}
	if id, err := strconv.ParseUint(name, 10, 32); err == nil && id != math.MaxUint32 { // which chown takes for "unchanged"
		number := int(id)
		return &number, nil
	}
	text, err := find()
	if err != nil {
		return nil, fmt.Errorf("no such %s %.64q; use a name or number that exists on this machine: %w", what, name, err)
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number on this system: %w", name, err)
	}
	return &id, nil
}

// Write keeps all files up to date until the returned function is called.
func Write(outputs []output.Config, source secret.Source, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, cfg := range outputs {
		all.Go(func() {
			if err := output.Run(ctx, cfg, source); err != nil {
				log.Error("cannot write output", "error", err) // the configuration was checked
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
