package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Providers are the processes that sign.
type Providers struct {
	// Authorities has one for each provider, in the order of the configuration.
	Authorities []secret.Authority

	all  []*pluginhost.Provider
	back chan string // names of providers that are ready again
}

// FindProviders finds and verifies the providers of a configuration whose providers are
// complete. It starts none: see [Providers.Begin]. due is that of [pluginhost.Options], and is
// called once they are started. Call Close.
func FindProviders(env environ.Vars, c *agent.Config, due func(name string) (time.Time, bool), log *slog.Logger) (*Providers, error) {
	runtimeDir := wiring.RuntimeDir(env, c.RuntimeDir)
	if err := wiring.CheckRuntimeDir(runtimeDir); err != nil {
		return nil, err
	}
	p := &Providers{back: make(chan string, 2*len(c.Providers))}
	opts := pluginhost.Options{
		Dirs: wiring.SearchDirs(env, c.ProviderDirs), Dev: c.Dev, RuntimeDir: runtimeDir, Log: log,
		LookupEnv: env.Lookup, CommandEnv: wiring.CommandEnv(env), OnState: p.note, Due: due,
	}
	book := wiring.NewTokenCache(env, log)
	var errs []error
	for _, entry := range c.Providers {
		provider, err := pluginhost.Find(opts, entry.ToRun())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.all = append(p.all, provider)
		authority, err := wiring.Authority(entry, provider, book)
		errs = append(errs, err)
		p.Authorities = append(p.Authorities, authority)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Providers) note(s pluginhost.Status) {
	if s.State == pluginhost.Ready {
		select {
		case p.back <- s.Name:
		default: // the queued ones suffice
		}
	}
}

// Begin starts the providers and waits for none: one that hangs delays its own names only.
func (p *Providers) Begin() {
	for _, one := range p.all {
		one.Begin()
	}
}

// Returned calls do with the name of each provider that is ready, for the first time or
// again, until ctx ends.
func (p *Providers) Returned(ctx context.Context, do func(name string)) {
	for {
		select {
		case name := <-p.back:
			do(name)
		case <-ctx.Done():
			return
		}
	}
}

// Status returns the state of all providers, by name. A nil *Providers has none.
func (p *Providers) Status() (all []overview.Provider) {
	if p == nil {
		return nil
	}
	for _, one := range p.all {
		all = append(all, overview.ProviderOf(one.Status()))
	}
	slices.SortFunc(all, func(a, b overview.Provider) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// OfProviders returns the troubles of providers that are not ready.
func OfProviders(providers []overview.Provider) (all []Problem) {
	for _, p := range providers {
		if grade := p.Mark().Grade; grade != Good {
			all = append(all, Problem{
				Grade: grade, What: "Provider " + p.Name + " is not ready: " + p.State, Detail: p.LastError, At: p.Since,
				Do: "See its last log lines. It restarts by itself, after growing pauses.",
			})
		}
	}
	return all
}

// Close stops the providers.
func (p *Providers) Close() error {
	errs := make([]error, len(p.all))
	var all sync.WaitGroup
	for i, one := range p.all {
		all.Go(func() { errs[i] = one.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}
