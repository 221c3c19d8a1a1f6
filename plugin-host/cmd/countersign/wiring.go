package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// providers are those of the configuration, running.
type providers struct {
	byName map[string]*pluginhost.Provider
	groups pluginhost.ProcessGroups
	agent  atomic.Pointer[agent.Agent] // nil until secrets are served
}

// openProviders starts all of them at once. Where one cannot be, none is.
func openProviders(ctx context.Context, c config.Config, log *slog.Logger, m *metrics) (*providers, error) {
	p := &providers{byName: map[string]*pluginhost.Provider{}}
	opts := pluginhost.Options{
		Dirs: searchDirs(c.ProviderDirs), Dev: c.Dev, RuntimeDir: runtimeDir(c.RuntimeDir), Groups: &p.groups, Log: log,
		OnState: func(s pluginhost.Status) {
			m.providerState(s)
			if a := p.agent.Load(); a != nil && s.State == pluginhost.Ready {
				go a.Retry(s.Name) // what failed for want of it need not wait
			}
		},
	}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, entry := range c.Providers {
		all.Go(func() {
			opened, err := pluginhost.Open(ctx, opts, pluginhost.Entry{
				Name: entry.Name, Provider: entry.Provider, SHA256: entry.SHA256, Settings: entry.Settings, Env: entry.Env,
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, asSettings(err))
				return
			}
			p.byName[entry.Name] = opened
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, p.close())...)
	}
	return p, nil
}

// asSettings marks what the operator mends in his settings.
func asSettings(err error) error {
	_, refused := errors.AsType[*pluginhost.RefusedError](err)
	_, missing := errors.AsType[*pluginhost.NotFoundError](err)
	if refused || missing || ca.ActionFor(err) == ca.EndAttempt {
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

// served tells whom to call when a provider is back.
func (p *providers) served(a *agent.Agent) { p.agent.Store(a) }

func (p *providers) close() error {
	var errs []error
	for _, provider := range p.byName {
		errs = append(errs, provider.Close())
	}
	return errors.Join(errs...)
}

func agentConfig(c config.Config, p *providers, m *metrics, log *slog.Logger) (agent.Config, error) {
	cfg := agent.Config{
		Socket: sds.Config{
			Path: c.Socket.Path, Mode: os.FileMode(c.Socket.Mode), Observe: m.stream,
			Policy: sds.Policy{UIDs: c.Socket.AllowUIDs, GIDs: c.Socket.AllowGIDs, Refuse: p.refuse},
		},
		DrainTimeout: c.DrainTimeout.Duration, Observe: m.secret, Log: log,
	}
	var errs []error
	for _, entry := range c.Providers {
		authority, err := authorityOf(entry, p.byName[entry.Name])
		errs = append(errs, err)
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	for _, entry := range c.Secrets {
		spec, err := specOf(entry, c.Rotation)
		errs = append(errs, err)
		cfg.Secrets = append(cfg.Secrets, spec)
		if spec.KeyType == pki.Ed25519 {
			log.Warn("older Envoys cannot use an Ed25519 key (1.40 was seen to)", "secret", spec.Name)
		}
	}
	return cfg, errors.Join(errs...)
}

// refuse turns away the providers' own processes: a socket that serves keys is
// nothing that a provider may ask.
func (p *providers) refuse(peer sds.Peer) error {
	if group, ok := processGroup(int(peer.PID)); ok && p.groups.Contains(group) {
		return errors.New("a provider's process may not ask for secrets")
	}
	return nil
}

func authorityOf(entry config.Provider, client ca.Client) (secret.Authority, error) {
	a := secret.Authority{Name: entry.Name, Client: client, AcceptLongerTTL: entry.AcceptLongerTTL}
	switch entry.IdentityCheck {
	case "trust-domain":
		a.Names = pki.TrustDomainName
	case "any":
		a.Names = pki.AnyName
	}
	if entry.RootOverlap != nil {
		a.RootOverlap = &entry.RootOverlap.Duration
	}
	if entry.PinnedRoots == "" {
		return a, nil
	}
	text, err := os.ReadFile(entry.PinnedRoots)
	if err == nil {
		a.PinnedRoots, err = pki.ParseBundle(text)
	}
	if err != nil {
		return a, fmt.Errorf("providers.%s.pinned_roots is %q: %w", entry.Name, entry.PinnedRoots, err)
	}
	return a, nil
}

func specOf(entry config.Secret, r config.Rotation) (secret.Spec, error) {
	if entry.Kind == config.TrustBundle {
		return secret.Spec{Name: entry.Name, Kind: secret.TrustBundle, Authorities: entry.Providers}, nil
	}
	id, err := pki.NewIdentity(entry.SPIFFEID, entry.DNSNames, entry.IPAddresses)
	if err != nil {
		return secret.Spec{}, fmt.Errorf("secrets.%s: %w", entry.Name, err)
	}
	keyType, err := pki.ParseKeyType(entry.KeyType)
	return secret.Spec{
		Name: entry.Name, Kind: secret.KeyPair, Authorities: []string{entry.Provider}, Identity: id,
		KeyType: keyType, TTL: entry.TTL.Duration, RenewRatio: r.Ratio, RenewJitter: max(r.Jitter, 1e-9), // 0 would be the default
	}, err
}
