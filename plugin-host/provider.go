package pluginhost

import (
	"context"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a provider under supervision. Its methods may be called by any
// number of goroutines at once, and wait for a life of it that is ready: until the
// caller's deadline, or [Options.CallTimeout] where there is none. Abilities that it
// lacks answer [ca.ErrUnimplemented].
type Provider struct {
	name       string
	plans      func(Entry) (*supervise.Plan, error) // finds and verifies
	reloading  sync.Mutex                           // held by the one Reload
	supervisor *supervise.Supervisor
}

var (
	_ ca.Client         = (*Provider)(nil)
	_ ca.RootSource     = (*Provider)(nil)
	_ ca.RootWatcher    = (*Provider)(nil)
	_ ca.TokenExchanger = (*Provider)(nil)
)

// Open finds, verifies and starts the entry's provider, and returns when it is
// ready: [Find], and [Provider.Start]. ctx bounds the opening alone.
func Open(ctx context.Context, opts Options, entry Entry) (*Provider, error) {
	p, err := Find(opts, entry)
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// Find finds and verifies the entry's binary and starts nothing: a binary that may
// not run is an error. Calls of the Provider wait for [Provider.Start]; whoever
// does not call that calls [Provider.Close].
func Find(opts Options, entry Entry) (*Provider, error) {
	opts = opts.withDefaults()
	if process.MissingProtection != "" {
		opts.Log.Warn("a protection is missing on this system", "missing", process.MissingProtection)
	}
	return newProvider(opts, entry, func(entry Entry) (*supervise.Plan, error) { return newPlan(opts, entry) })
}

// InProcess supervises a provider without a process: for tests, and for agents
// that are one binary. Each life is a new value of make.
func InProcess(ctx context.Context, opts Options, entry Entry, make func() wire.Provider) (*Provider, error) {
	p, err := newProvider(opts.withDefaults(), entry, func(entry Entry) (*supervise.Plan, error) { return residentPlan(entry, make) })
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

func newProvider(opts Options, entry Entry, plans func(Entry) (*supervise.Plan, error)) (*Provider, error) {
	first, err := plans(entry)
	if err != nil {
		return nil, err
	}
	return &Provider{name: entry.Name, plans: plans, supervisor: supervise.New(opts.supervise(), first)}, nil
}

// Start starts the provider and returns when it is ready. A handshake that fails
// and settings that are refused are errors, and close the Provider; a provider that
// says that its CA is away is started all the same and gets ready later. ctx bounds
// the start alone. It must be called once.
func (p *Provider) Start(ctx context.Context) error { return p.supervisor.Start(ctx) }

// Close takes no new calls, waits for those in flight as long as
// [Options.StopTimeout] allows, and ends the process. It may be called twice and
// returns when nothing of the provider is left.
func (p *Provider) Close() error {
	p.supervisor.Close()
	return nil
}

// Status returns what is known now.
func (p *Provider) Status() Status { return p.supervisor.Status() }

// CSRSign implements [ca.Client].
func (p *Provider) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return p.supervisor.CSRSign(ctx, req)
}

// Roots implements [ca.RootSource].
func (p *Provider) Roots(ctx context.Context) ([]byte, error) { return p.supervisor.Roots(ctx) }

// ExchangeToken implements [ca.TokenExchanger].
func (p *Provider) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return p.supervisor.ExchangeToken(ctx, req)
}

// WatchRoots implements [ca.RootWatcher]. It goes on when the process is another:
// changed is called again only for roots that differ.
func (p *Provider) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return p.supervisor.WatchRoots(ctx, changed)
}

// Reload looks for the entry's binary again, verifies it, and starts it with the
// entry's settings beside the process that is ready. Calls move when the new one is
// ready, and those in flight end in the old one. Where it does not get ready before
// ctx ends (or [Options.CallTimeout], without a deadline), the error says why, and
// the old one stays; a provider that says that its CA is away is not ready. Where
// nothing has changed, nothing is started. A provider that is in backoff, or whose
// circuit is open, is started at once. The entry's name must be the old one.
func (p *Provider) Reload(ctx context.Context, entry Entry) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	if entry.Name != p.name {
		return fmt.Errorf("provider %q: its name cannot become %q", p.name, entry.Name)
	}
	plan, err := p.plans(entry)
	if err != nil {
		return err
	}
	return p.supervisor.Reload(ctx, plan)
}
