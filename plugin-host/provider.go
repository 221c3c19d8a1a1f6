package pluginhost

import (
	"context"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a supervised provider. It is safe for concurrent use. Calls wait until the
// provider is ready, up to the caller's deadline or [Options.CallTimeout]. Abilities that
// it lacks return [ca.ErrUnimplemented].
type Provider struct {
	name       string
	plans      func(Entry) (*supervise.Plan, error) // find and verify
	supervisor *supervise.Supervisor
}

var (
	_ ca.Client           = (*Provider)(nil)
	_ ca.RootSource       = (*Provider)(nil)
	_ ca.RootWatcher      = (*Provider)(nil)
	_ ca.TokenExchanger   = (*Provider)(nil)
	_ ca.NameCertifier    = (*Provider)(nil)
	_ ca.RenewalAdvisor   = (*Provider)(nil)
	_ ca.RevocationSource = (*Provider)(nil)
	_ ca.JWTSigner        = (*Provider)(nil)
)

// Open finds, verifies and starts the entry's provider, and returns when it is ready: it
// calls [Find] and [Provider.Start]. ctx bounds Open only.
func Open(ctx context.Context, opts Options, entry Entry) (*Provider, error) {
	p, err := Find(opts, entry)
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
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
	return p, p.Start(ctx)
}

func newProvider(opts Options, entry Entry, plans func(Entry) (*supervise.Plan, error)) (*Provider, error) {
	first, err := plans(entry)
	if err != nil {
		return nil, err
	}
	return &Provider{name: entry.Name, plans: plans, supervisor: supervise.New(opts.supervise(first.Name), first)}, nil
}

// Begin starts the provider and returns at once. A provider that does not get ready is
// restarted with backoff; one that rejects its settings is Refused, and started again at
// [Provider.Reload] or after 10 minutes at most.
func (p *Provider) Begin() { p.supervisor.Begin() }

// Start is Begin for a caller that cannot do without the provider: it returns when the
// provider is ready. If the handshake fails or the provider rejects its settings, it closes
// the Provider and returns the error. If the provider's CA is unavailable, it succeeds and
// the provider gets ready later. ctx bounds Start only.
func (p *Provider) Start(ctx context.Context) error { return p.supervisor.Start(ctx) }

// Close rejects new calls, waits up to [Options.StopTimeout] for those in flight, ends
// the process and returns when nothing is left of it. It may be called twice.
func (p *Provider) Close() error {
	p.supervisor.Close()
	return nil
}

// Status returns the current status.
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

// CertifiesNames implements [ca.NameCertifier] by the provider's metadata.
func (p *Provider) CertifiesNames(ctx context.Context) error {
	return p.supervisor.CertifiesNames(ctx)
}

// RenewalInfo implements [ca.RenewalAdvisor].
func (p *Provider) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	return p.supervisor.RenewalInfo(ctx, leaf)
}

// Revocations implements [ca.RevocationSource].
func (p *Provider) Revocations(ctx context.Context) ([]byte, error) {
	return p.supervisor.Revocations(ctx)
}

// SignJWT implements [ca.JWTSigner].
func (p *Provider) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	return p.supervisor.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner]. It survives restarts of the process: changed is
// called only for keys that differ.
func (p *Provider) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return p.supervisor.WatchJWTKeys(ctx, changed)
}

// WatchRoots implements [ca.RootWatcher]. It survives restarts of the process: changed is
// called only for roots that differ.
func (p *Provider) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return p.supervisor.WatchRoots(ctx, changed)
}

// Client returns the client for the entry in force. Unlike the Provider it does not follow a
// [Next] that is committed: its calls then fail, so that the rules for one entry's CA are
// never applied to the reply of another.
func (p *Provider) Client() Client { return p.supervisor.Of(p.supervisor.InForce()) }

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
