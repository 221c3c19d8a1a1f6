package agent

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// providers are the provider processes of the configuration.
type providers struct {
	opts       pluginhost.Options
	mu         sync.Mutex
	byName     map[string]*pluginhost.Provider
	groups     pluginhost.ProcessGroups
	tokens     *wiring.TokenCache          // used by the start, then under the reloader's lock
	stream     workloads.Followed          // the hook for tokens of streams
	agent      atomic.Pointer[agent.Agent] // asked what is due
	retry      func(provider string)       // called when one is ready, once there is an agent
	identities briefly[identities.Counts]  // of an agent of many
	onDemand   briefly[ondemand.Status]
	// recorder remembers errors from the first step on, which is finding the providers.
	recorder status.Recorder
}

// checkRuntimeDir returns an error if the providers' sockets have no folder.
func checkRuntimeDir(env environ.Vars, c config.Config) error {
	if len(c.Providers) == 0 {
		return nil
	}
	return wiring.CheckRuntimeDir(wiring.RuntimeDir(env, c.RuntimeDir))
}

// findProviders finds and verifies all providers without starting them. A provider that may
// not run is an error. Their starts are traced; nil: none is.
func findProviders(env environ.Vars, c config.Config, traces trace.Tracer, log *slog.Logger) (*providers, error) {
	p := &providers{byName: map[string]*pluginhost.Provider{}, tokens: wiring.NewTokenCache(env, log)}
	p.opts = pluginhost.Options{
		Dirs: wiring.SearchDirs(env, c.ProviderDirs), Dev: c.Dev, RuntimeDir: wiring.RuntimeDir(env, c.RuntimeDir), ReceiptDir: receiptDir(),
		LookupEnv: env.Lookup, CommandEnv: wiring.CommandEnv(env), Groups: &p.groups, Tracer: traces, Log: log, OnState: p.onState, Due: p.due,
	}
	first, err := p.change(c)
	if err != nil {
		return nil, err
	}
	p.take(first)
	return p, nil
}

// of returns the provider of an entry, or nil.
func (p *providers) of(name string) *pluginhost.Provider {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name]
}

// client returns the client for the entry in force.
func (p *providers) client(name string) ca.Client { return p.of(name).Client() }

// all returns the current providers.
func (p *providers) all() map[string]*pluginhost.Provider {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.byName)
}

// begin starts all providers, and calls retry whenever one becomes ready. It waits for none of them.
func (p *providers) begin(a *agent.Agent, retry func(provider string)) {
	p.retry = retry
	p.agent.Store(a)
	for _, provider := range p.all() {
		provider.Begin()
	}
}

func (p *providers) onState(s pluginhost.Status) {
	p.recorder.Provider(s)
	if p.agent.Load() != nil && s.State == pluginhost.Ready {
		go p.retry(s.Name) // requests that failed without it need not wait
	}
}

// keep removes the providers that the configuration no longer has, and returns what stops
// them.
func (p *providers) keep(c config.Config) (stop func()) {
	return p.remove(func(name string) bool {
		return !slices.ContainsFunc(c.Providers, func(entry config.Provider) bool { return entry.Name == name })
	})
}

// asSettings marks errors that the operator fixes in the settings.
func asSettings(err error) error {
	_, refused := errors.AsType[*pluginhost.RefusedError](err)
	_, entry := errors.AsType[*pluginhost.EntryError](err)
	_, missing := errors.AsType[*pluginhost.NotFoundError](err)
	if refused || missing || entry {
		return cli.Wrong(err)
	}
	return err
}

// receiptDir is in the user's cache folder; without one, no receipts are kept.
func receiptDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "countersign")
}

// refuse rejects the providers' own processes: they must not reach a socket that serves
// keys.
func (p *providers) refuse(peer sds.Peer) error {
	if group, ok := processGroup(int(peer.PID)); ok && p.groups.Contains(group) || p.groups.ContainsUser(peer.UID) {
		return errors.New("provider processes must not request secrets")
	}
	return nil
}

// close stops all providers.
func (p *providers) close() error {
	p.remove(func(string) bool { return true })()
	return nil
}

// remove returns what stops the removed providers: all at the same time, as each may take a while.
func (p *providers) remove(which func(name string) bool) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var removed []*pluginhost.Provider
	for name, provider := range p.byName {
		if which(name) {
			removed = append(removed, provider)
			delete(p.byName, name)
		}
	}
	return func() {
		var all sync.WaitGroup
		for _, provider := range removed {
			all.Go(func() { _ = provider.Close() }) // it never fails
		}
		all.Wait()
	}
}
