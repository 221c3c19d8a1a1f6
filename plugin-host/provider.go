package pluginhost

import (
	"context"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a supervised provider. It is safe for concurrent use. It has the methods of
// [ca.Client] and of each further ability of package ca. Calls wait until the provider is
// ready, up to the caller's deadline or [Options.CallTimeout]. Abilities that it lacks return
// [ca.ErrUnimplemented]. A watch survives restarts of the process.
type Provider struct {
	calls                                           // under the entry in force
	plans      func(Entry) (*supervise.Plan, error) // find and verify
	supervisor *supervise.Supervisor
}

// Open finds, verifies and starts the entry's provider: it calls [Find] and [Provider.Start],
// whose rule says when it returns. It does not wait for a CA that is unavailable: see
// [Provider.Status] for that, or make a call. ctx bounds Open only. On error nothing runs, and
// the Provider is nil.
func Open(ctx context.Context, opts Options, entry Entry) (*Provider, error) {
	p, err := Find(opts, entry)
	if err != nil {
		return nil, err
	}
	return started(ctx, p)
}

func started(ctx context.Context, p *Provider) (*Provider, error) {
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Find finds and verifies the entry's binary and starts nothing. It fails if the binary
// must not run. Calls of the Provider wait for [Provider.Begin]; the caller must
// [Provider.Close] it.
func Find(opts Options, entry Entry) (*Provider, error) {
	opts = opts.withDefaults()
	if process.MissingProtection != "" {
		opts.Log.Warn("protection unavailable on this system", "missing", process.MissingProtection)
	}
	return newProvider(opts, entry, func(entry Entry) (*supervise.Plan, error) { return newPlan(opts, entry) })
}

// InProcess supervises a provider without a process, for tests and for agents that are
// one binary. Each start calls make for a new value.
func InProcess(ctx context.Context, opts Options, entry Entry, make func() wire.Provider) (*Provider, error) {
	opts = opts.withDefaults()
	p, err := newProvider(opts, entry, func(entry Entry) (*supervise.Plan, error) { return residentPlan(opts, entry, make) })
	if err != nil {
		return nil, err
	}
	return started(ctx, p)
}

func newProvider(opts Options, entry Entry, plans func(Entry) (*supervise.Plan, error)) (*Provider, error) {
	first, err := plans(entry)
	if err != nil {
		return nil, err
	}
	s := supervise.New(opts.supervise(first.Name), first)
	return &Provider{calls: s.Client, plans: plans, supervisor: s}, nil
}

// Begin starts the provider and returns at once. A provider that does not get ready is
// restarted with backoff; one that rejects its settings is Refused, and started again at
// [Provider.Reload] or after 10 minutes at most.
func (p *Provider) Begin() { p.supervisor.Begin() }

// Start is Begin for a caller that cannot do without the provider. It returns nil as soon as the
// provider is ready, or has accepted its settings and reports that its CA is unavailable: it is
// then Configuring, and gets ready when the CA does. If the handshake fails or the provider
// rejects its settings, Start closes the Provider and returns the error. ctx bounds Start only.
func (p *Provider) Start(ctx context.Context) error { return exported(p.supervisor.Start(ctx)) }

// Close rejects new calls, waits up to [Options.StopTimeout] for those in flight, ends
// the process and returns when nothing is left of it. It may be called twice.
func (p *Provider) Close() error {
	p.supervisor.Close()
	return nil
}

// Status returns the current status.
func (p *Provider) Status() Status { return statusOf(p.supervisor.Status()) }

// Client returns the client for the entry in force. Unlike the Provider it does not follow a
// [Next] that is committed: its calls then fail, so that the rules for one entry's CA are
// never applied to the reply of another.
func (p *Provider) Client() Client {
	return Client{p.supervisor.Of(p.supervisor.InForce())}
}

// Reload starts a provider with another entry and, when that is ready, commits it: see
// [Provider.Next] and [Next.Start]. After an error the old one runs on.
func (p *Provider) Reload(ctx context.Context, entry Entry) error {
	n, err := p.Next(entry)
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	n.Commit()
	return nil
}
