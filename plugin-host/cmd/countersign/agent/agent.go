// Package agent implements "countersign agent", which gets the configured secrets and serves
// them. main adds its [Command]; "config validate" calls [Verify], which performs the checks of
// a start without running anything. The goroutine of the command owns everything that it
// starts; one goroutine at a time reloads.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/metrics"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/outputs"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/plugin-host/otlp"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Command returns "agent".
func Command() *cobra.Command {
	var in settings.Flags
	cmd := &cobra.Command{
		Use: "agent [flags] [-- PROXY ARG…]", Short: "Get the configured secrets and serve them over SDS",
		Long: `Get the configured secrets and serve them over SDS until SIGTERM.

A setting comes from its flag, else from its variable (COUNTERSIGN_ and the flag's
name), else from Istio's variable (CA_ADDR, TRUST_DOMAIN, SECRET_TTL, …), else from the
file, else it has its default.

It serves at once. A provider that fails to start is started again with backoff, and one
that refuses its settings when they or its binary change; the secrets of others and what
is held do not wait for it. systemd is told (Type=notify) when the sockets serve and the
kept state is read.

The agent reloads its configuration when the file changes, and at SIGHUP. A provider
whose binary, pin, settings or variables have changed is started beside the old one and
takes over when it is ready. Secrets, revocation lists, rotation, the log level and the socket's
policy change at once; unchanged secrets keep their certificates and streams. The log names the
settings that need a restart.

The command after "--", or proxy.command in the file, runs as a child: it starts when
the secrets are held, is restarted when it exits, and is drained (proxy.drain) and gets
SIGTERM before the agent drains. SIGUSR1 and SIGUSR2 are passed on to it. When it is no longer restarted, the
agent exits with its exit code.

The exit code is 0 after SIGTERM or SIGINT, 2 if a setting is wrong (nothing was
started), 1 after any other failure, and 130 after a second signal, which ends the agent
at once unless it comes within a second of the first.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args = args[:dash]
			}
			return cli.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, proxy []string) error {
			in.Proxy = proxy
			c, err := in.Read()
			if err != nil {
				return cli.Wrong(err)
			}
			return runAgent(cmd.Context(), c, &in)
		},
	}
	cli.ServeOn(cmd)
	in.AddFlags(cmd)
	in.AddBuildFlags(cmd)
	return cmd
}

// runAgent starts everything in order of dependency, reloads changed configurations, and
// stops everything in reverse order.
func runAgent(ctx context.Context, c config.Config, in *settings.Flags) (err error) {
	log, level := newLog(c.Log)
	if err := protect.Process(); err != nil {
		return err
	}
	if missing := protect.Missing(); missing != "" {
		log.Warn("protection unavailable on this system", "missing", missing)
	}
	tellChoice(c, log)
	traces, err := otlp.Open(ctx, otlp.Options{Service: "countersign-agent", Version: buildinfo.This().Version, Getenv: os.Getenv, Log: log})
	if err != nil {
		return cli.Wrong(err)
	}
	defer traces.Close()
	page, err := operatorpage.Listen(c.Status.Address, true, log)
	if err != nil {
		return cli.Wrong(fmt.Errorf("status.address: %w", err))
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	out, err := listenOutside(c.Status, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, out.close()) }()
	providers, err := findProviders(c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, providers.close()) }()
	counts := metrics.New(&providers.recorder, providers.all)
	files, err := openFiles(c.Files, counts.Secret, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	cfg, err := agentConfig(c, providers, counts, log)
	if err != nil {
		return cli.Wrong(err)
	}
	cfg.Tracer = traces.Tracer()
	if cfg.Storage, err = openState(ctx, c.State, counts, log); err != nil {
		return cli.Wrong(err)
	}
	spire, err := openSpire(c.Spire, counts.Secret, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, spire.close()) }()
	given, err := openSpireAuthority(c, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, given.close()) }()
	given.join(&cfg)
	foreign, err := openFederation(c.BundleEndpoints, log)
	if err != nil {
		return cli.Wrong(err)
	}
	foreign.join(&cfg)
	cfg.Revocation = revocationOf(c, providers, spire.lists(given))
	jwts, err := openJWTSVIDs(c.WorkloadAPI.JWTSVID, &cfg, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, jwts.close()) }()
	others := secret.First(files, spire)
	if !c.Workloads.On() {
		cfg.Sources = append(cfg.Sources, files, spire)
	}
	providers.stream.Follow(cfg.Identities)
	anchor(cfg.Secrets, &c, others)
	child, err := newProxyChild(c, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer child.close()
	written, err := outputs.Configs(c, counts.Output, log)
	if err != nil {
		return cli.Wrong(err)
	}
	tokens := newTokenFiles(c)
	a, err := agent.New(cfg) // opens the socket; its requests wait for the providers
	if err != nil {
		return cli.Wrong(err)
	}
	providers.begin(a)
	given.begin(a)
	foreign.begin(a.Secrets())
	if child.Proxy != nil {
		counts.Proxy(child.Proxy)
	}
	providers.recorder.Outputs(outputs.Described(c))
	providers.recorder.KeepsState(c.State.Dir)
	showAgent(page, out, a, providers, counts, child, jwts, machineOf(c, in.FileName()))
	defer returnMemory(a)()
	defer outputs.Write(written, a.Secrets(), log)()
	defer tokens.watch(tokenInterval, a.Retry)()
	r := &reloader{
		reread: in.Read, started: c, running: c, names: cfg.Socket.SPIRE, agent: a, providers: providers, given: given, foreign: foreign, jwts: jwts, metrics: counts, others: others, lists: spire.lists(given), tokens: tokens, level: level, log: log,
	}
	defer watchConfig(in, cli.Hangups(ctx), log, r.reload)()
	if err := notifyReady(os.Getenv("NOTIFY_SOCKET")); err != nil {
		log.Warn("cannot tell the service manager that the agent is ready", "error", err)
	}
	return child.run(ctx, a)
}

// Verify performs the checks of a start without running anything.
func Verify(c config.Config) error {
	log := slog.New(slog.DiscardHandler)
	providers, err := findProviders(c, log)
	if err != nil {
		return err
	}
	defer providers.close() //nolint:errcheck // nothing has been started
	if _, err := openFederation(c.BundleEndpoints, log); err != nil {
		return err
	}
	_, err = agentConfig(c, providers, metrics.New(&providers.recorder, providers.all), log)
	return err
}

// tellChoice logs where the two secrets of every Envoy come from.
func tellChoice(c config.Config, log *slog.Logger) {
	for _, s := range c.Sources() {
		if s.Name == config.DefaultSecret || s.Name == config.RootCA {
			log.Info("chose the source of a secret", "secret", s.Name, "from", s.Place(), "because", s.Rule)
		}
	}
	if c.Socket.Enabled && c.ListenPath() != c.Socket.Path {
		log.Info("leaving the SDS socket to another program", "socket", c.Socket.Path, "serves_itself", c.ListenPath())
	}
}

func newLog(c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(levelOf(c))
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), level
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts)), level
}

func levelOf(c config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo // the config has checked it
	}
	return level
}
