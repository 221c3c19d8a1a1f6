package pluginhost

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a supervised provider. It is safe for concurrent use. It has the methods of
// [ca.Client] and of each further ability of package ca. Calls wait until the provider is
// ready, up to the caller's deadline or [Options.CallTimeout]. Abilities that it lacks return
// [ca.ErrUnimplemented]. A watch survives restarts of the process: changed is called only for a set
// that differs.
type Provider struct {
	calls // under the entry in force

	opts  Options
	plans func(Entry) (*Plan, error) // find and verify
	name  string                     // of the entry
	log   *slog.Logger
	watch filewatch.Options // of the files that settings name
	gate  gate              // where calls wait
	messages
	ending

	// The goroutine run owns the rest, and starts every process. What others want of it are orders;
	// what happens to a life is a case of its select.

	plan *Plan // what is started when a life ends
	lives
	revival
	status Status // the gate has a copy
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
	return newProvider(opts, entry, func(entry Entry) (*Plan, error) { return newPlan(opts, entry) })
}

// InProcess supervises a provider without a process, for tests and for agents that are
// one binary. Each start calls make for a new value.
func InProcess(ctx context.Context, opts Options, entry Entry, make func() wire.Provider) (*Provider, error) {
	opts = opts.withDefaults()
	p, err := newProvider(opts, entry, func(entry Entry) (*Plan, error) { return residentPlan(opts, entry, make) })
	if err != nil {
		return nil, err
	}
	return started(ctx, p)
}

func newProvider(opts Options, entry Entry, plans func(Entry) (*Plan, error)) (*Provider, error) {
	first, err := plans(entry)
	if err != nil {
		return nil, err
	}
	s := supervised(opts, first)
	s.plans = plans
	return s, nil
}

// supervised makes a provider that has started nothing yet. It closes the plan, and those that
// replace it.
func supervised(opts Options, p *Plan) *Provider {
	s := &Provider{
		opts: opts, name: p.entry.Name, log: opts.Log.With("provider", p.entry.Name), plan: p, status: p.status(),
		watch: filewatch.Options{Log: opts.Log}, gate: gate{changed: make(chan struct{}), plan: p},
		messages: messages{
			first: make(chan error, 1), orders: make(chan func()), gone: make(chan struct{}),
		},
		ending:  ending{closing: make(chan struct{}), closed: make(chan struct{})},
		revival: revival{rest: func() {}},
	}
	p.s, s.calls = s, Client{s, nil}
	s.patience, s.hurry = context.WithCancel(context.Background())
	s.status.Since = time.Now()
	s.gate.status = s.status
	return s
}

// Begin starts the provider and returns at once. A provider that does not get ready is
// restarted with backoff; one that rejects its settings is Refused, and started again at
// [Provider.Reload] or after 10 minutes at most.
func (s *Provider) Begin() {
	s.begun.Do(func() {
		s.plan.use()
		go s.run()
	})
}

// Start is Begin for a caller that cannot do without the provider. It returns nil as soon as the
// provider is ready, or has accepted its settings and reports that its CA is unavailable: it is
// then Configuring, and gets ready when the CA does. If the handshake fails or the provider
// rejects its settings, Start closes the Provider and returns the error. ctx bounds Start only.
func (s *Provider) Start(ctx context.Context) error {
	s.Begin()
	var err error
	select {
	case err = <-s.first:
	case <-s.closing: // by a concurrent Close
		err = errClosing
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	_ = s.Close() // it never fails
	return exported(fmt.Errorf("provider %q: %w", s.name, err))
}

// Close rejects new calls, waits up to [Options.StopTimeout] for those in flight, ends
// the process and returns when nothing is left of it. It may be called twice.
func (s *Provider) Close() error {
	s.close.Do(func() { close(s.closing) })
	s.begun.Do(func() {
		s.end()
		close(s.closed)
	})
	<-s.closed
	return nil
}

// Status returns the current status.
func (s *Provider) Status() Status { return s.gate.read().clone() }

// Client returns the client for the entry in force. Unlike the Provider it does not follow a
// [Plan] that is committed: its calls then fail, so that the rules for one entry's CA are
// never applied to the reply of another.
func (s *Provider) Client() Client { return Client{s, s.gate.inForce()} }

// Reload starts a provider with another entry and, when that is ready, commits it: see
// [Provider.Next] and [Plan.Start]. After an error the old one runs on.
func (s *Provider) Reload(ctx context.Context, entry Entry) error {
	n, err := s.Next(entry)
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	n.Commit()
	return nil
}
