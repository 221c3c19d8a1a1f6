// Package agent holds the command that gets the configured secrets and serves them:
// [Command]. [Verify] does what its start does before it runs anything.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/metrics"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/outputs"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// Command makes `agent`.
func Command() *cobra.Command {
	var in settings.Flags
	cmd := &cobra.Command{
		Use: "agent [flags] [-- PROXY ARG…]", Short: "Get the configured secrets and serve them over SDS",
		Long: `Get the configured secrets and serve them over SDS, until SIGTERM.

Each setting comes from its flag, else from its variable (COUNTERSIGN_ and the
flag's name), else from the file, else it has its default. Istio's variables
(CA_ADDR, TRUST_DOMAIN, SECRET_TTL, …) are understood, too.

When its file has another content, or at SIGHUP, it reads its configuration again. A
provider whose binary, pin, settings or variables changed is started anew beside the
old one, and takes over when it is ready; secrets, rotation, the log's level and the
socket's policy are taken over, and what is the same keeps its certificate and its
streams. What needs a restart instead is named in the log.

What follows "--", or proxy.command in the file, is run as a child: it starts when
the secrets are held, is restarted when it ends, and gets SIGTERM before the agent
drains. SIGUSR1 and SIGUSR2 are passed on to it. When it has ended for good, the
agent ends with its exit code.

It exits with 0 after SIGTERM or SIGINT, with 2 where a setting is wrong (then
nothing was started), with 1 after any other failure; a second signal ends it at
once, with 130.`,
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
	in.AddFlags(cmd)
	in.AddBuildFlags(cmd)
	return cmd
}

// runAgent starts everything in the order in which it is needed, and ends it the
// other way round. When its configuration is another, it takes it over.
func runAgent(ctx context.Context, c config.Config, in *settings.Flags) (err error) {
	log, level := newLog(c.Log)
	if err := protect.Process(); err != nil {
		return err
	}
	if missing := protect.Missing(); missing != "" {
		log.Warn("protection unavailable on this system", "missing", missing)
	}
	tellChoice(c, log)
	page, err := operatorpage.Listen(c.Status.Address, true, log)
	if err != nil {
		return cli.Wrong(fmt.Errorf("status.address: %w", err))
	}
	defer func() { err = errors.Join(err, page.Close()) }()
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
	if cfg.Storage, err = openState(ctx, c.State, counts, log); err != nil {
		return cli.Wrong(err)
	}
	if !c.Workloads.On() {
		cfg.Sources = append(cfg.Sources, files)
	}
	providers.stream.Follow(cfg.Identities)
	anchor(cfg.Secrets, &c, files)
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
	a, err := agent.New(cfg) // takes the socket; what it asks of providers waits for them
	if err != nil {
		return cli.Wrong(err)
	}
	if err := providers.start(ctx, c, a); err != nil {
		if ctx.Err() != nil {
			err = nil // told to end before it had begun
		}
		return errors.Join(err, a.Close())
	}
	if child.Proxy != nil {
		counts.Proxy(child.Proxy)
	}
	showAgent(page, a, providers, counts, child)
	defer returnMemory(a)()
	defer outputs.Write(written, a.Secrets(), log)()
	defer tokens.watch(tokenInterval, a.Retry)()
	r := &reloader{
		reread: in.Read, started: c, running: c, agent: a, providers: providers, metrics: counts, files: files, tokens: tokens, level: level, log: log,
	}
	defer watchConfig(in, log, r.reload)()
	return child.run(ctx, a)
}

// Verify does what a start does before it runs anything.
func Verify(c config.Config) error {
	log := slog.New(slog.DiscardHandler)
	providers, err := findProviders(c, log)
	if err != nil {
		return err
	}
	defer providers.close() //nolint:errcheck // nothing of it has been started
	_, err = agentConfig(c, providers, metrics.New(&providers.recorder, providers.all), log)
	return err
}

// tellChoice says in a line for each what answers the two names of every Envoy.
func tellChoice(c config.Config, log *slog.Logger) {
	for _, s := range c.Sources() {
		if s.Name == config.DefaultSecret || s.Name == config.RootCA {
			log.Info("the source is chosen", "secret", s.Name, "from", s.Place(), "because", s.Rule)
		}
	}
	if c.Socket.Enabled && c.ListenPath() != c.Socket.Path {
		log.Info("another program's SDS socket is left alone", "socket", c.Socket.Path, "serves_itself", c.ListenPath())
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
