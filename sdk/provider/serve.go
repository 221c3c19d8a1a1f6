package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/internal/memory"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// After SIGTERM, calls in flight have stopGrace to end and their replies replyGrace to be sent.
const (
	stopGrace  = 5 * time.Second
	replyGrace = time.Second
)

// startEnds is after the handshake: by then, most providers are configured and have signed once. One
// that has not maps the pages again that it needs.
const startEnds = 2 * time.Second

// garbage is what a provider's heap may hold beside what is in use.
const garbage = 16 << 20

// Main is the main function of a provider: it serves the provider until its host goes away. It
// does not return. See [Define] for the parameters.
func Main[S any, C ca.Client](name, version string, open func(ctx context.Context, settings S) (C, error)) {
	Define(name, version, open).Serve()
}

// Serve serves the provider to the host that started this process. It exits the process when
// the host goes away or asks for it, and with status 1 if no host started the process.
//
// A Countersign host passes a connection and a lifeline as descriptors (see
// proto/provider/PROTOCOL.md); any other go-plugin host finds it on a socket. Standard
// output is redirected to standard error, as only the handshake line belongs there. Records
// of [slog.Default] reach the host's log. On Linux, no other process of the user can read the memory
// of this one, and it leaves no core dump; attach a debugger as root, or start the provider in one.
func (d *Definition) Serve() {
	go d.metadata() //nolint:errcheck // beside the rest of the start, as reflection takes time
	if os.Getenv(wire.MagicCookieKey) != wire.MagicCookieValue {
		d.refuseWrong() // its author sees it at the first start, by hand, too
		fmt.Fprintf(os.Stderr, "%s %s is a Countersign provider: a host such as `countersign agent` starts it, not you.\n", d.name, d.version)
		os.Exit(1)
	}
	log := newLog(os.Stderr)
	slog.SetDefault(log)
	if err := protectMemory(); err != nil {
		log.Error("cannot serve the provider", "error", err)
		os.Exit(1)
	}
	discardInterrupts()
	if err := d.serve(log); err != nil {
		log.Error("cannot serve the provider", "error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// refuseWrong exits the process if the definition is wrong.
func (d *Definition) refuseWrong() {
	if _, err := d.metadata(); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s cannot be served: %v\n", d.name, d.version, err)
		os.Exit(1)
	}
}

// protectMemory keeps tokens and the author's credentials out of core dumps and away from other
// processes of this user, such as other providers. A debugger that started the provider goes on.
func protectMemory() error {
	if protect.Traced() {
		return nil
	}
	return protect.Process()
}

// discardInterrupts drops SIGINT: ^C in a terminal reaches host and provider, and the host
// decides. It is caught and not ignored, as programs that the author starts would inherit that.
func discardInterrupts() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) }

// host is the host process as the provider reaches it.
type host struct {
	listener net.Listener
	options  []grpc.ServerOption
	register func(*grpc.Server) // services beside those of a provider; nil: none
	stdout   *os.File           // the real one
	address  string             // the fields of the handshake line after the version
}

// find returns the host that started this process.
func find() (*host, error) {
	if os.Getenv(wire.EnvChannelFD) != "" {
		return inherit()
	}
	return stockHost()
}

// serve serves the host until it has shut the provider down.
func (d *Definition) serve(log *slog.Logger) error {
	protocol, err := d.negotiate(os.Getenv(wire.EnvVersions))
	if err != nil {
		return err
	}
	host, err := find()
	if err != nil {
		return err
	}
	instance := d.newInstance()
	server := newServer(log, protocol, instance, host.options)
	if host.register != nil {
		host.register(server)
	}
	go drainOnTerm(server, instance)
	d.refuseWrong()
	if _, err := fmt.Fprintf(host.stdout, "1|%d|%s\n", protocol.Version, host.address); err != nil {
		return fmt.Errorf("write the handshake line: %w", err)
	}
	memory.CollectSeldom(garbage)
	time.AfterFunc(startEnds, memory.Return)
	defer closeWithin(instance, replyGrace)
	if err := server.Serve(host.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, errChannelEnded) {
		return err
	}
	return nil
}

// drainOnTerm waits for SIGTERM and then for the calls in flight.
func drainOnTerm(server *grpc.Server, instance *instance) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	<-terminated
	closeWithin(instance, stopGrace)
	// Leaves time for the last replies; a watch may not end.
	time.AfterFunc(replyGrace, server.Stop)
	server.GracefulStop()
}

// closeWithin closes the authority after its calls, or gives up after grace.
func closeWithin(instance *instance, grace time.Duration) {
	closed := make(chan struct{})
	go func() {
		_ = instance.Close() // never fails
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(grace):
	}
}

// newServer returns the gRPC server of a provider.
func newServer(log *slog.Logger, protocol wire.Protocol, p wire.Provider, options []grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(options, wire.ServerOptions(log)...)...)
	wire.Register(server, protocol, p)
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	return server
}

// negotiate returns the highest version that both sides support.
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
		return best, fmt.Errorf("no common protocol version: the host supports %q, %s %s does not", wire.CleanText(offered, ""), d.name, d.version)
	}
	return best, nil
}
