package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/control-plane/cmd/countersign-discovery/config"
	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func serveCommand() *cobra.Command {
	var in settings
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve ADS and SDS until SIGTERM", Args: cli.NoArgs,
		Long: `Serve ADS and SDS until SIGTERM, which ends all streams over the time to drain.

Nobody is answered before the own certificate is there and the clusters are synced;
/readyz says what is missing. It exits with 0 after SIGTERM or SIGINT, with 2 where a
setting is wrong (then nothing was started), with 1 after any other failure; a second
signal ends it at once, with 130.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.read()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), c)
		},
	}
	in.addFlags(cmd)
	return cmd
}

// serve starts everything in the order in which it is needed, and ends it the other way
// round.
func serve(ctx context.Context, c config.Config) (err error) {
	log := newLog(c.Log)
	if err := protect.Process(); err != nil {
		return err
	}
	clientGoTo(log)
	if missing := protect.Missing(); missing != "" {
		log.Warn("a protection is missing on this system", "missing", missing)
	}
	page, err := listenPages(c.Status, log)
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { err = errors.Join(err, page.close()) }()
	go ignoreHangups(ctx, log)
	s := &service{config: c, log: log, metrics: newMetrics()}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to end before it had begun
		}
		return err
	}
	listeners, err := listen(c.Listen, log)
	if err != nil {
		return cli.Wrong(err)
	}
	s.metrics.watch(s)
	page.serve(s)
	return s.server.Run(ctx, listeners)
}

// ignoreHangups says that SIGHUP, which has the agent read its configuration again, is of
// no use here. Without it, the signal would end the process, and no stream were drained.
func ignoreHangups(ctx context.Context, log *slog.Logger) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	for {
		select {
		case <-hangups:
			log.Warn("SIGHUP changes nothing: for another configuration, start the service again")
		case <-ctx.Done():
			return // the signal stays without effect
		}
	}
}

func listen(c config.Listen, log *slog.Logger) (l discovery.Listeners, err error) {
	if c.TLS != "" {
		if l.TLS, err = net.Listen("tcp", c.TLS); err != nil {
			return l, fmt.Errorf("listen.tls is %q: %w", c.TLS, err)
		}
		log.Info("ADS and SDS over TLS", "address", l.TLS.Addr().String())
	}
	if c.Plaintext != "" {
		if l.Plaintext, err = net.Listen("tcp", c.Plaintext); err != nil {
			if l.TLS != nil {
				err = errors.Join(err, l.TLS.Close())
			}
			return l, fmt.Errorf("listen.plaintext is %q: %w", c.Plaintext, err)
		}
		log.Info("ADS and SDS without TLS", "address", l.Plaintext.Addr().String())
	}
	return l, nil
}

// tlsOf shows the certificate that is held at each handshake. Envoy's TLS clients take
// 1.2 at most where nobody says otherwise.
func (s *service) tlsOf() (*tls.Config, error) {
	shown, err := tlsconfig.Server(tlsconfig.Options{Source: s.source, Certificate: agent.DefaultSecret})
	if err != nil {
		return nil, err
	}
	shown.MinVersion = tls.VersionTLS12
	return shown, nil
}

func newLog(c agent.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // the config has checked it
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}
