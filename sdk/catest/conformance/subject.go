package conformance

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Subject gives access to the provider under test.
type Subject struct {
	Form string // value, wire or process
	// Open returns a provider without settings.
	Open func(ctx context.Context) (*Instance, error)
	// Log is called before a check, and what it returns after one that failed: for the lines
	// that the provider has logged meanwhile, fit to be shown. Nil: it has no log.
	Log func() func() []string
}

// Instance is one instance of the provider.
type Instance struct {
	wire.Provider
	// Conn is the connection to it; nil if it is a value.
	Conn grpc.ClientConnInterface
	// Busy returns the number of calls it is processing; nil if that cannot be observed.
	Busy func() int
	// Stop ends the instance.
	Stop func()
}

// Value returns a subject for a provider in this process.
func Value(make func() wire.Provider) Subject {
	return Subject{Form: "value", Open: func(context.Context) (*Instance, error) {
		p := make()
		return &Instance{Provider: p, Stop: func() { closeProvider(p) }}, nil
	}}
}

func closeProvider(p wire.Provider) {
	if closer, ok := p.(io.Closer); ok {
		_ = closer.Close() // a process would discard its error, too
	}
}

// OverWire returns a subject for the same provider behind the in-memory wire protocol.
func OverWire(make func() wire.Provider) Subject {
	return Subject{Form: "wire", Open: func(context.Context) (*Instance, error) { return serve(make()) }}
}

const pipeSize = 1 << 20

func serve(p wire.Provider) (*Instance, error) {
	var busy atomic.Int64
	listener := bufconn.Listen(pipeSize)
	server := grpc.NewServer(append(wire.ServerOptions(nil), grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			busy.Add(1)
			defer busy.Add(-1)
			return next(ctx, req)
		}), grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if info.FullMethod == providerv1.CertificateAuthorityStream_CSRSignStream_FullMethodName {
				return next(srv, stream) // busy counts its calls
			}
			busy.Add(1)
			defer busy.Add(-1)
			return next(srv, stream)
		}))...)
	wire.Register(server, wire.V1(), busyWith{p, &busy})
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until stop
	}()
	conn, err := grpc.NewClient("passthrough:///provider", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	stop := func() {
		_ = errors.Join(conn.Close(), listener.Close()) // both are in memory
		server.Stop()
		<-served
		closeProvider(p)
	}
	return &Instance{
		Provider: wire.NewRemote(conn, wire.RemoteOptions{}), Conn: conn,
		Busy: func() int { return int(busy.Load()) }, Stop: stop,
	}, err
}

// busyWith counts the calls of CSRSign that have not returned, also those of a stream.
type busyWith struct {
	wire.Provider
	busy *atomic.Int64
}

func (s busyWith) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	return s.Provider.CSRSign(ctx, req)
}
