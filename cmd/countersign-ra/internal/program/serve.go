package program

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/otlp"
	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
)

func serveCommand(env environ.Vars) *cobra.Command {
	in := flags(env)
	cmd := &cobra.Command{
		Use: "serve", Short: "Sign requests until SIGTERM", Args: cli.NoArgs,
		Long: `Sign requests until SIGTERM, while this replica holds the Lease. A replica that does
not hold it waits, and calls no CA for Kubernetes' requests.

With istio.listen set, each replica serves Istio's CA API, whoever holds the Lease.

SIGHUP reopens the audit file, for logrotate, and takes over from the configuration file:
rules with their values of CertSigner, and clusters, issuers, node_proxies, csr_names and
renewals of istio. Other settings need a restart.

The exit code is 0 after SIGTERM or SIGINT, 2 if a setting is wrong (nothing was started),
1 after any other failure, and 130 after a second signal, which ends the process at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.Read()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), *c, &in, cli.IO{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
		},
	}
	cli.ServeOn(cmd)
	in.Add(cmd)
	return cmd
}

// garbage is what the heap may hold beside what is in use, in bytes.
const garbage = 32 << 20

// serve starts everything in order of dependency, and stops it in reverse.
func serve(ctx context.Context, c config.Config, in *daemon.Flags[*config.Config], streams cli.IO) (err error) {
	life := daemon.NewLife(in.File, map[string]string{"istio.listen": c.Istio.Listen, "publish_bundle.address": c.PublishBundle.Address, "status.address": c.Status.Address, "status.probes": c.Status.Probes})
	log, pages, err := daemon.Begin(streams.Err, c.Log, c.Status)
	if err != nil {
		return err
	}
	memory.CollectSeldom(garbage)
	fleet.LogClient(log)
	defer func() { err = errors.Join(err, pages.Close()) }()
	traces, err := otlp.Open(ctx, otlp.Options{Service: config.Program, Version: buildinfo.This().Version, Getenv: in.Env.Get, Log: log})
	if err != nil {
		return cli.Wrong(err)
	}
	defer traces.Close()
	s := &service{config: c, log: log, metrics: metrics.New(), life: life, env: in.Env, stdout: streams.Out, read: in.Read, tracer: traces.Tracer()}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.make(ctx); err != nil {
		return err
	}
	s.metrics.Watch(metrics.Source{Report: s.report, Left: s.left, Meshes: s.meshes})
	pages.Show(s.content())
	daemon.NotifyReady(in.Env, log)
	return s.run(ctx)
}

// verify makes everything that serve does, and closes it.
func verify(ctx context.Context, env environ.Vars, c *config.Config) error {
	s := &service{config: *c, log: slog.New(slog.DiscardHandler), metrics: metrics.New(), env: env, dry: true}
	return errors.Join(s.make(ctx), s.close())
}
