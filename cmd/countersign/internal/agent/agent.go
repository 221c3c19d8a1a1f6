// Package agent implements "countersign agent", which gets the configured secrets and serves
// them. main adds its [Command]; "config validate" calls [Verify], which performs the checks of
// a start without running anything. The goroutine of the command owns everything that it
// starts; one goroutine at a time reloads.
package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// Command returns "agent".
func Command(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	var once bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "agent [flags] [-- PROXY ARG…]", Short: "Get the configured secrets and serve them over SDS",
		Long: `Get the configured secrets and serve them over SDS until SIGTERM.

A setting comes from its flag, else from its variable (COUNTERSIGN_ and the flag's
name), else from Istio's variable (CA_ADDR, TRUST_DOMAIN, SECRET_TTL, …), else from the
file, else it has its default.

It serves at once. A provider that fails to start is started again with backoff; one that
rejects its settings is started again when they or its binary change. Other providers'
secrets and held secrets do not wait for it. systemd is notified (Type=notify) when the
sockets serve. The stored state has been read by then, or is read on while they serve:
with thousands of secrets that takes seconds, and those that are asked for come first.

The agent reloads its configuration when the file changes, and at SIGHUP. A provider
whose binary, pin, settings or variables have changed is started beside the old one. When it
is ready it takes over, together with its pinned_roots, identity_check and token; until
then the previous ones stay in force, and it is tried again. Secrets, revocation lists, rotation, the log level and the socket's
policy change at once; unchanged secrets keep their certificates and streams. The log names the
settings that need a restart.

The command after "--", or proxy.command in the file, runs as a child: it starts when
the secrets are held, is restarted when it exits, and is drained (proxy.drain) and gets
SIGTERM before the agent drains. SIGUSR1 and SIGUSR2 are passed on to it. When it is no longer restarted, the
agent exits with its exit code.

With --once, for cron, CI and init containers, it opens no socket, writes the files of outputs,
reloads their programs and exits: with 0 when all is done, with 1 and what is missing after
--once-timeout. A run orders only certificates that are due: the others are read back from the
state, or without one from outputs that have their keys.

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
			if !once {
				timeout = 0
			} else if c, err = forOnce(c, timeout); err != nil {
				return cli.Wrong(err)
			}
			return runAgent(cmd.Context(), c, &in, timeout, cmd.ErrOrStderr())
		},
	}
	cli.ServeOn(cmd)
	in.AddFlags(cmd)
	in.AddBuildFlags(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "write the files of outputs, reload their programs, and exit")
	cmd.Flags().DurationVar(&timeout, "once-timeout", onceTimeout, "with --once: exit with code 1 after this time")
	return cmd
}

// runAgent starts everything, reloads changed configurations, and stops everything in reverse
// order. With a timeout it only writes its outputs.
func runAgent(ctx context.Context, c config.Config, in *settings.Flags, once time.Duration, stderr io.Writer) (err error) {
	log, level := newLog(stderr, c.Log)
	s := &start{c: c, in: in, log: log}
	if once > 0 {
		s.once = newOnceWritten(c)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.begin(ctx, level)()
	if s.once != nil {
		return s.runOnce(ctx, once)
	}
	manager := in.Env.Get("NOTIFY_SOCKET")
	if err := cli.Notify(manager, "READY=1"); err != nil {
		log.Warn("failed to notify the service manager that the agent is ready", "error", err)
	}
	defer notifyStatus(manager, func() string { return statusLine(s.agent) })()
	return s.child.run(ctx, s.agent)
}

// Verify performs the checks of a start without running anything.
func Verify(env environ.Vars, c config.Config) error {
	log := slog.New(slog.DiscardHandler)
	providers, err := findProviders(env, c, nil, log)
	if err != nil {
		return err
	}
	defer providers.close() //nolint:errcheck // nothing has been started
	if _, err := openFederation(&c, nil, log); err != nil {
		return err
	}
	rules, err := demand.New(env, log).Prepare(c)
	if err != nil {
		return err
	}
	rules.Drop()
	_, err = agentConfig(c, clients{providers.client, providers.tokens}, providers, metrics.New(&providers.recorder, providers.all), log)
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

func newLog(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(levelOf(c))
	return cli.NewLog(w, c.Format, level), level
}

func levelOf(c config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo // the config has checked it
	}
	return level
}
