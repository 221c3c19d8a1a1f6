package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/status"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// providers are those of the configuration.
type providers struct {
	byName map[string]*pluginhost.Provider
	groups pluginhost.ProcessGroups
	agent  atomic.Pointer[agent.Agent] // whom to tell that a provider is back
	// recorder remembers what went wrong: providers are found before all else, so it is theirs.
	recorder status.Recorder
}

// findProviders finds and verifies all of them and starts none. Where one may not
// run, it is an error.
func findProviders(c config.Config, log *slog.Logger) (*providers, error) {
	p := &providers{byName: map[string]*pluginhost.Provider{}}
	opts := pluginhost.Options{
		Dirs: searchDirs(c.ProviderDirs), Dev: c.Dev, RuntimeDir: runtimeDir(c.RuntimeDir), ReceiptDir: receiptDir(),
		Groups: &p.groups, Log: log, OnState: p.onState,
	}
	var mu sync.Mutex
	err := each(c.Providers, func(entry config.Provider) error {
		found, err := pluginhost.Find(opts, entryOf(entry))
		if err != nil {
			return asSettings(err)
		}
		mu.Lock()
		defer mu.Unlock()
		p.byName[entry.Name] = found
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// each does the same for all at once.
func each(entries []config.Provider, do func(config.Provider) error) error {
	errs := make([]error, len(entries))
	var all sync.WaitGroup
	for i, entry := range entries {
		all.Go(func() { errs[i] = do(entry) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func entryOf(p config.Provider) pluginhost.Entry {
	return pluginhost.Entry{
		Name: p.Name, Provider: p.Provider, SHA256: p.SHA256, Settings: p.Settings, Env: p.Env, User: p.User,
		Limits: pluginhost.Limits{
			Memory: int64(p.Limits.Memory), Descriptors: int(p.Limits.Descriptors), Processes: int(p.Limits.Processes), CPU: p.Limits.CPU,
		},
	}
}

// start starts all of them, for an agent that wants to know when one is back.
func (p *providers) start(ctx context.Context, c config.Config, a *agent.Agent) error {
	p.agent.Store(a)
	return each(c.Providers, func(entry config.Provider) error { return asSettings(p.byName[entry.Name].Start(ctx)) })
}

func (p *providers) onState(s pluginhost.Status) {
	p.recorder.Provider(s)
	if a := p.agent.Load(); a != nil && s.State == pluginhost.Ready {
		go a.Retry(s.Name) // what failed for want of it need not wait
	}
}

// reload has each take over its entry. One that does not goes on as it was.
func (p *providers) reload(ctx context.Context, c config.Config) error {
	return each(c.Providers, func(entry config.Provider) error {
		running, ok := p.byName[entry.Name]
		if !ok {
			return nil // a restart will take it
		}
		return running.Reload(ctx, entryOf(entry))
	})
}

// asSettings marks what the operator mends in his settings.
func asSettings(err error) error {
	_, refused := errors.AsType[*pluginhost.RefusedError](err)
	_, entry := errors.AsType[*pluginhost.EntryError](err)
	_, missing := errors.AsType[*pluginhost.NotFoundError](err)
	if refused || missing || entry || ca.ActionFor(err) == ca.EndAttempt {
		return settingsError{err}
	}
	return err
}

func runtimeDir(configured string) string {
	if configured == "" {
		return os.Getenv("XDG_RUNTIME_DIR")
	}
	return configured
}

// receiptDir is below the user's cache; none are kept where he has none.
func receiptDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "countersign")
}

// refuse turns away the providers' own processes: a socket that serves keys is
// nothing that a provider may ask.
func (p *providers) refuse(peer sds.Peer) error {
	if group, ok := processGroup(int(peer.PID)); ok && p.groups.Contains(group) || p.groups.ContainsUser(peer.UID) {
		return errors.New("a provider's process may not ask for secrets")
	}
	return nil
}

// close ends all of them at once: each may take its time.
func (p *providers) close() error {
	var all sync.WaitGroup
	errs := make(chan error, len(p.byName))
	for _, provider := range p.byName {
		all.Go(func() { errs <- provider.Close() })
	}
	all.Wait()
	close(errs)
	var joined error
	for err := range errs {
		joined = errors.Join(joined, err)
	}
	return joined
}
