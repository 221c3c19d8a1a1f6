package program

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func serveCommand(env environ.Vars) *cobra.Command {
	in := flags(env)
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve ADS and SDS until SIGTERM", Args: cli.NoArgs,
		Long: `Serve ADS and SDS until SIGTERM, then end all streams over the drain time.

The service rejects streams until it holds its own certificate and the clusters are
synced; /readyz reports what is missing.

The exit code is 0 after SIGTERM or SIGINT, 2 if a setting is wrong (nothing was started),
1 after any other failure, and 130 after a second signal, which ends the process at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.Read()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), *c, in.File, env, cmd.ErrOrStderr())
		},
	}
	cli.ServeOn(cmd)
	in.Add(cmd)
	return cmd
}

// serve starts everything in order of dependency, and stops it in reverse.
func serve(ctx context.Context, c config.Config, file string, env environ.Vars, stderr io.Writer) (err error) {
	life := daemon.NewLife(file, map[string]string{
		"listen.tls": c.Listen.TLS, "listen.plaintext": c.Listen.Plaintext, "publish_bundle.address": c.PublishBundle.Address, "status.address": c.Status.Address, "status.probes": c.Status.Probes,
	})
	life.WatchFile()
	log, page, err := daemon.Begin(stderr, c.Log, c.Status)
	if err != nil {
		return err
	}
	fleet.LogClient(log)
	defer func() { err = errors.Join(err, page.Close()) }()
	go ignoreHangups(ctx, log)
	s := &service{config: c, env: env, log: log, metrics: newMetrics(), life: life}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it had started
		}
		return err
	}
	listeners, err := listen(c.Listen, log)
	if err != nil {
		return cli.Wrong(err)
	}
	if err := s.showBundle(); err != nil {
		return err
	}
	s.metrics.watch(s)
	page.Show(s.content())
	daemon.NotifyReady(env, log)
	return s.server.Run(ctx, listeners)
}

// ignoreHangups logs that SIGHUP, which makes the agent reload, has no effect here.
func ignoreHangups(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case <-cli.Hangups(ctx):
			log.Warn("ignoring SIGHUP: restart the service to change its configuration")
		case <-ctx.Done():
			return // the signal stays ignored
		}
	}
}

func listen(c config.Listen, log *slog.Logger) (l discovery.Listeners, err error) {
	if c.TLS != "" {
		if l.TLS, err = net.Listen("tcp", c.TLS); err != nil {
			return l, fmt.Errorf("listen.tls is %q: %w", c.TLS, err)
		}
		log.Info("serving ADS and SDS over TLS", "address", l.TLS.Addr().String())
	}
	if c.Plaintext != "" {
		if l.Plaintext, err = net.Listen("tcp", c.Plaintext); err != nil {
			if l.TLS != nil {
				err = errors.Join(err, l.TLS.Close())
			}
			return l, fmt.Errorf("listen.plaintext is %q: %w", c.Plaintext, err)
		}
		log.Info("serving ADS and SDS without TLS", "address", l.Plaintext.Addr().String())
	}
	return l, nil
}

// tlsOf returns a configuration that presents the current certificate in each handshake. It
// allows TLS 1.2, the default maximum of Envoy's clients.
func (s *service) tlsOf() (*tls.Config, error) {
	shown, err := tlsconfig.Server(tlsconfig.Options{Source: s.source, Certificate: agent.DefaultSecret})
	if err != nil {
		return nil, err
	}
	shown.MinVersion = tls.VersionTLS12
	return shown, nil
}

// content is what the pages show.
func (s *service) content() daemon.Content {
	return daemon.Content{
		Probes: s.server.Probes(), Metrics: s.metrics.registry,
		Report: func() any { return s.report() }, Page: func(w http.ResponseWriter) { status.Show(w, s.report()) },
	}
}
