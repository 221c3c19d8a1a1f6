package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/outputs"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/otlp"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// start is an agent on its way up: what has been opened so far, and what ends it again.
type start struct {
	c   config.Config
	in  *settings.Flags
	log *slog.Logger
	cfg agent.Config

	traces    *otlp.Exporter
	page      *operatorpage.Page
	out       *outsidePages
	bundle    *publishedBundle
	providers *providers
	counts    *metrics.Metrics
	spire     spireSource
	given     *spireAuthority
	foreign   *federated
	state     secret.Storage // of state.dir; nil: none
	jwts      jwtSVIDs
	wits      witSVIDs
	others    secret.Source // of files and of a Workload API
	demand    *demand.Rules // nil in an agent of many identities, and with --once
	child     *proxyChild
	written   []output.Config
	once      *onceWritten // nil: it serves until it is ended
	agent     *agent.Agent
	broker    *broker.Server // nil: off

	ends []func() error
}

// later has end called when the agent stops, after all that is opened from now on has ended.
func (s *start) later(end func() error) { s.ends = append(s.ends, end) }

func (s *start) close() error {
	var errs []error
	for _, end := range slices.Backward(s.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// open opens everything in order of dependency, and starts no provider: whatever a setting makes fail
// fails here. The caller calls close, after an error too.
func (s *start) open(ctx context.Context) error {
	if err := s.protect(); err != nil {
		return err
	}
	tellChoice(s.c, s.log)
	if err := s.openPages(ctx); err != nil {
		return cli.Wrong(err)
	}
	if err := s.openProviders(); err != nil {
		return err
	}
	for _, open := range []func(context.Context) error{s.openOwn, s.openSources, s.openProxy, s.openAgent, s.openBroker} {
		if err := open(ctx); err != nil {
			return cli.Wrong(err)
		}
	}
	return nil
}

func (s *start) protect() error {
	memory.SetLimit()
	memory.CollectLate()
	if err := protect.Process(); err != nil {
		return err
	}
	cli.WarnSystem(s.log)
	if missing := protect.Missing(); missing != "" {
		s.log.Warn("protection unavailable on this system", "missing", missing)
	}
	return nil
}

// openPages opens what operators use: traces, the status page, and addresses for others.
func (s *start) openPages(ctx context.Context) (err error) {
	s.traces, err = otlp.Open(ctx, otlp.Options{Service: "countersign-agent", Version: buildinfo.This().Version, Getenv: s.in.Env.Get, Log: s.log})
	if err != nil {
		return err
	}
	s.later(func() error { s.traces.Close(); return nil })
	if s.page, err = operatorpage.Listen(s.c.Status.Address, true, s.log); err != nil {
		return fmt.Errorf("status.address: %w", err)
	}
	s.later(s.page.Close)
	if s.out, err = listenOutside(s.c.Status, s.log); err != nil {
		return err
	}
	s.later(s.out.close)
	return nil
}

func (s *start) openProviders() (err error) {
	if err := checkRuntimeDir(s.in.Env, s.c); err != nil {
		return cli.Wrong(err)
	}
	if s.providers, err = findProviders(s.in.Env, s.c, s.traces.Tracer(), s.log); err != nil {
		return err
	}
	s.later(func() error { return s.providers.close() })
	s.counts = metrics.New(&s.providers.recorder, s.providers.all)
	return nil
}

// openOwn makes the agent's configuration of secrets that CAs sign.
func (s *start) openOwn(ctx context.Context) (err error) {
	if s.cfg, err = agentConfig(s.c, clients{s.providers.client, s.providers.tokens}, s.providers, s.counts, s.log); err != nil {
		return err
	}
	s.cfg.Tracer = s.traces.Tracer()
	if s.c.Workloads.On() && s.c.WorkloadAPI.Socket != "" {
		s.cfg.WorkloadAPI.Callers = &workloadapi.Callers{Identify: s.identify(workloads.Peers(s.c.Workloads.Peers)), Observe: s.counts.WorkloadAPI()}
	}
	if s.state, err = openState(ctx, s.in.Env, s.c.State, s.counts, s.log); err != nil {
		return err
	}
	s.written, err = outputs.Configs(s.c, func(e output.Event) { s.counts.Output(e); s.once.observe(e) }, s.log)
	if err != nil {
		return err
	}
	s.cfg.Storage = storageOf(s.c, s.state, s.written, s.cfg.Secrets)
	if s.bundle, err = listenBundle(s.c, s.state, s.log); err != nil {
		return err
	}
	s.later(func() error { return s.bundle.close() })
	return s.openDemand()
}

// openDemand makes the rules for certificates on demand. An agent without rules may get some later, but
// not a run of --once, which leaves the log of names to the agent that serves.
func (s *start) openDemand() error {
	if s.c.Workloads.On() || s.once != nil {
		return nil
	}
	s.demand = demand.New(s.in.Env, s.log)
	s.later(func() error { s.demand.Close(); return nil })
	next, err := s.demand.Prepare(s.c)
	if err != nil {
		return err
	}
	next.Take()
	s.cfg.OnDemand = &ondemand.Config{Rules: next.Rules(), Reserved: demand.Reserved}
	if _, keeps := s.state.(kept); keeps {
		s.demand.Keep(context.Background(), s.state)
		s.cfg.OnDemand.Uses = demand.Uses{Storage: s.state}
	}
	return s.openNames()
}

// openNames opens where certificates on demand survive a restart: the store that machines share, or the
// state of this one.
func (s *start) openNames() error {
	if s.c.Store.Folder != "" {
		shared, err := openShared(s.c.Store, s.log)
		s.cfg.OnDemand.Storage = shared
		return err
	}
	if in := s.c.Store.Kubernetes; in.Namespace != "" {
		shared, err := in.Open(overview.ThisMachine().Host, s.log)
		if err != nil {
			return fmt.Errorf("store.kubernetes: %w", err)
		}
		s.later(func() error { shared.Close(); return nil })
		s.cfg.OnDemand.Storage = shared
		return nil
	}
	names, err := openNames(s.state, s.c, s.log)
	if err != nil || names == nil {
		return err
	}
	s.later(names.Close)
	s.cfg.OnDemand.Storage = names
	return nil
}

// openSources opens where other secrets come from, and what comes with them.
func (s *start) openSources(context.Context) (err error) {
	files, err := openFiles(s.in.Env, s.c.Files, s.counts.Secret, s.log)
	if err != nil {
		return err
	}
	s.later(files.Close)
	if s.spire, err = openSpire(s.c.Spire, s.counts.Secret, s.log); err != nil {
		return err
	}
	s.later(s.spire.close)
	if s.given, err = openSpireAuthority(s.c, s.log); err != nil {
		return err
	}
	s.later(s.given.close)
	s.given.join(&s.cfg)
	if s.foreign, err = openFederation(&s.c, s.state, s.log); err != nil {
		return err
	}
	s.foreign.join(&s.cfg)
	s.cfg.Revocation = revocationOf(s.c, s.providers, s.spire.lists(s.given))
	if s.jwts, err = openJWTSVIDs(s.c.WorkloadAPI.JWTSVID, &s.cfg, s.log); err != nil {
		return err
	}
	s.later(s.jwts.close)
	if s.wits, err = openWITSVIDs(&s.c, &s.cfg, s.log); err != nil {
		return err
	}
	s.later(s.wits.close)
	s.others = secret.First(files, s.spire)
	if !s.c.Workloads.On() {
		s.cfg.Sources = append(s.cfg.Sources, files, s.spire)
	}
	s.providers.stream.Follow(s.cfg.Identities)
	anchor(s.cfg.Secrets, &s.c, s.others)
	return nil
}

func (s *start) openProxy(context.Context) (err error) {
	if s.child, err = newProxyChild(s.in.Env, s.c, s.log); err != nil {
		return err
	}
	s.later(func() error { s.child.close(); return nil })
	return nil
}

// openAgent opens the socket, whose requests wait for the providers.
func (s *start) openAgent(context.Context) (err error) {
	s.agent, err = agent.New(s.cfg)
	return err
}

// retry repeats what failed by a provider, which is ready or has another credential.
func (s *start) retry(provider string) {
	s.agent.Retry(provider)
	s.jwts.retry(provider)
	s.wits.retry(provider)
}

// begin starts all that works in the background, and returns what ends it.
func (s *start) begin(ctx context.Context, level *slog.LevelVar) (stop func()) {
	s.providers.begin(s.agent, s.retry) // first: the rest is made while they start
	r := newReloader(s, level)
	s.given.begin(s.agent)
	s.foreign.begin(s.agent.Secrets())
	if s.child.Proxy != nil {
		s.counts.Proxy(s.child.Proxy)
	}
	s.bundle.show(s.agent.Secrets(), s.jwts, s.wits)
	s.providers.recorder.Outputs(outputs.Described(s.c))
	s.providers.recorder.KeepsState(s.c.State.Dir)
	showAgent(s.page, s.out, s.agent, s.providers, s.counts, s.child, s.jwts, s.wits, machineOf(s.c, s.in.FileName()), s.log)
	stops := []func(){
		returnMemory(s.agent),
		watchStreams(&s.providers.recorder, s.namesConfigured, s.log),
		outputs.Write(s.written, s.agent.Secrets(), s.log),
		r.tokens.watch(tokenInterval, s.retry),
		r.close,
		watchConfig(s.in, cli.Hangups(ctx), s.log, r.reload),
	}
	return func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
}
