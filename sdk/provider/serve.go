package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// stopGrace is how long calls in flight may take after SIGTERM.
const stopGrace = 5 * time.Second

// Main is the whole main function of a provider: it defines the provider and
// serves it until its host goes away. It does not return.
func Main[S any, C ca.Client](name, version string, open func(ctx context.Context, settings S) (C, error)) {
	Define(name, version, open).Serve()
}

// Serve serves the provider to the host that started this process, and exits with
// the process when the host is gone or asks for it.
//
// A Countersign host passes a connection and a lifeline by descriptor (see
// proto/provider/PROTOCOL.md); for any other go-plugin host it is stock
// plugin.Serve. What is printed on standard output goes to standard error, as the
// handshake line alone belongs there. [slog.Default] arrives in the host's log.
func (d *Definition) Serve() {
	if os.Getenv(wire.MagicCookieKey) != wire.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "%s %s is a Countersign provider: it is started by its host, `countersign agent` for one, not by hand.\n", d.name, d.version)
		os.Exit(1)
	}
	log := hostLog()
	slog.SetDefault(log)
	signal.Ignore(os.Interrupt) // ^C in a terminal goes to all; the host decides
	if os.Getenv(wire.EnvChannelFD) == "" {
		d.serveStock(log)
		return
	}
	if err := d.serveChannel(log); err != nil {
		log.Error("the provider cannot be served", "error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveChannel serves the connection that the host passed.
func (d *Definition) serveChannel(log *slog.Logger) error {
	protocol, err := d.negotiate(os.Getenv(wire.EnvVersions))
	if err != nil {
		return err
	}
	host, err := inherit()
	if err != nil {
		return err
	}
	server := d.newServer(log, protocol, nil)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		select {
		case <-terminated:
		case <-host.gone:
			os.Exit(0) // at once: what is in flight has nobody to go to
		}
		time.AfterFunc(stopGrace, server.Stop)
		server.GracefulStop()
	}()
	if _, err := fmt.Fprintf(host.stdout, "1|%d|unix|%s|grpc\n", protocol.Version, wire.ChannelAddress); err != nil {
		return fmt.Errorf("write the handshake line: %w", err)
	}
	if err := server.Serve(host.channel); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, errChannelEnded) {
		return err
	}
	return nil
}

// newServer returns a gRPC server of a new instance.
func (d *Definition) newServer(log *slog.Logger, protocol wire.Protocol, opts []grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(opts, wire.ServerOptions(log)...)...)
	wire.Register(server, protocol, d.Provider())
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	return server
}

// negotiate returns the highest version that both speak.
func (d *Definition) negotiate(offered string) (wire.Protocol, error) {
	var versions []int
	for text := range strings.SplitSeq(offered, ",") {
		if version, err := strconv.Atoi(text); err == nil {
			versions = append(versions, version)
		}
	}
	var best wire.Protocol
	for _, p := range d.protocols {
		if slices.Contains(versions, p.Version) && p.Version > best.Version {
			best = p
		}
	}
	if best.Version == 0 {
		return best, fmt.Errorf("the host speaks the protocol versions %q, none of which %s %s does", wire.CleanText(offered, ""), d.name, d.version)
	}
	return best, nil
}

// hostLog writes records as hosts of go-plugin read them: hclog's JSON, a line each.
func hostLog() *slog.Logger {
	names := map[string]string{slog.TimeKey: "@timestamp", slog.LevelKey: "@level", slog.MessageKey: "@message"}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.LevelDebug, // the host filters
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			name, ours := names[a.Key]
			if len(groups) > 0 || !ours {
				return a
			}
			a.Key = name
			if name == "@level" {
				a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
			}
			return a
		},
	}))
}
