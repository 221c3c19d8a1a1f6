// Package grpcsocket serves gRPC on a unix socket to the peers that a policy admits, or to those that
// a TLS handshake has verified: call [Listen], register services, and call [Server.Serve]. The SDS
// server, the Workload API and the Broker API use it. Health and reflection are there from the start.
// gRPC owns the goroutines; the policy is replaced atomically.
package grpcsocket

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/countersign-dev/countersign/internal/inbound"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/internal/reflection"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Config of a server.
type Config struct {
	// Path of the unix socket, at most 107 bytes. Required, unless there is an Address.
	Path string
	// Address is the host:port to listen on instead of Path. It needs TLS. Default: none.
	Address string
	// TLS verifies the peers, which makes Policy irrelevant. It must require client certificates.
	// Default: none, and the kernel identifies the peers.
	TLS *tls.Config
	// MaxAge is how long a connection lasts, as one with TLS outlives its peer's certificate. Default:
	// no limit.
	MaxAge time.Duration
	// Mode of the socket file. Default: 0600.
	Mode fs.FileMode
	// Policy decides which peers are served. Default: this user and root.
	Policy unixpeer.Policy
	// Serving reports whether the services can serve, which gRPC's health service returns. It must
	// not block. Default: always.
	Serving func() bool
	// MaxMessage is the most bytes of a message from a peer. Default: 4 MiB.
	MaxMessage int
	// Handshake is the timeout of a new connection's HTTP/2 handshake. Default: 10 s.
	Handshake time.Duration
	// Log. Default: [slog.Default].
	Log *slog.Logger
}

const (
	// maxMessage and maxHeaders bound one message, by default, and its metadata, in bytes.
	maxMessage = 4 << 20
	maxHeaders = 64 << 10
	// writeBuffer takes a secret with its key and chain. Each connection with something to write
	// takes one from a pool, and a push writes to thousands at once.
	writeBuffer = 8 << 10
	// maxStreams of one connection: Envoy opens one for each secret.
	maxStreams = 10_000
	// Keepalive detects a peer that vanished.
	pingEvery, pingTimeout = time.Minute, 20 * time.Second
	// maxIdle is how long a connection without a stream is kept; clients reconnect.
	maxIdle = 5 * time.Minute
	// ageGrace is how long the streams of a connection last that has reached MaxAge.
	ageGrace = 10 * time.Second
)

// Server is a gRPC server on a socket of its own.
type Server struct {
	grpc       *grpc.Server
	socket     listener
	tls        bool // it has verified each peer
	policy     atomic.Pointer[unixpeer.Policy]
	log        *slog.Logger
	health     *checked
	reflection *reflection.Server

	repeats   loglimit.Repeats // of peers that the policy does not admit
	onlookers onlookers
}

// Listen opens the socket. Connections wait until [Server.Serve].
func Listen(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if unixpeer.MissingProtection != "" && cfg.TLS == nil {
		cfg.Log.Warn("protection unavailable on this system", "missing", unixpeer.MissingProtection)
	}
	socket, err := cfg.listen()
	if err != nil {
		return nil, err
	}
	s := &Server{socket: socket, tls: cfg.TLS != nil, log: cfg.Log, health: newHealth(cfg.Serving)}
	s.policy.Store(&cfg.Policy)
	s.grpc = s.newGRPC(cfg)
	s.introspect()
	return s, nil
}

func (c Config) withDefaults() Config {
	c.Mode = cmp.Or(c.Mode, 0o600)
	if c.Serving == nil {
		c.Serving = func() bool { return true }
	}
	c.MaxMessage = cmp.Or(c.MaxMessage, maxMessage)
	c.Handshake = cmp.Or(c.Handshake, 10*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

func (s *Server) newGRPC(cfg Config) *grpc.Server {
	creds := unixpeer.Credentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	return grpc.NewServer(
		grpc.Creds(inbound.Process().Credentials(creds, cfg.Log)),
		grpc.MaxRecvMsgSize(cfg.MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(cfg.Handshake),
		grpc.WriteBufferSize(writeBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: maxIdle, MaxConnectionAge: cfg.MaxAge, MaxConnectionAgeGrace: ageGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A window that grows would let each stream send 16 MiB before they are read.
		grpc.StaticStreamWindowSize(64<<10),
		// Serve admitted peers only, whatever the method. An interceptor would see a call once its
		// message of up to 4 MiB is read.
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			peer, err := s.Admit(ctx)
			if err != nil {
				s.refused(peer, err)
			}
			return ctx, err
		}),
		grpc.StreamInterceptor(s.stream),
	)
}

// RegisterService implements [grpc.ServiceRegistrar].
func (s *Server) RegisterService(desc *grpc.ServiceDesc, service any) {
	s.grpc.RegisterService(desc, service)
}

// Admit returns the peer of an RPC, or the status to end the RPC with. A peer that TLS has verified is
// admitted, and is the zero one here.
func (s *Server) Admit(ctx context.Context) (unixpeer.Peer, error) {
	if s.tls {
		known(ctx)
		return unixpeer.Peer{}, nil
	}
	return s.policy.Load().Admit(ctx)
}

// refused logs who was not admitted, once a minute for a reason, which has the user.
func (s *Server) refused(peer unixpeer.Peer, err error) {
	if suppressed, ok := s.repeats.Allow(status.Convert(err).Message(), time.Now()); ok {
		s.log.Warn("refused a peer of the socket", "socket", s.socket.Addr().String(), "uid", peer.UID, "gid", peer.GID, "pid", peer.PID,
			"error", text.Clean(status.Convert(err).Message()), "suppressed", suppressed)
	}
}

// SetPolicy replaces the policy. RPCs in progress go on, but for streams of health and reflection;
// gone reports whether the new policy no longer admits a peer.
func (s *Server) SetPolicy(p unixpeer.Policy) (gone func(unixpeer.Peer) bool) {
	s.policy.Store(&p)
	gone = func(peer unixpeer.Peer) bool { return p.Check(peer) != nil }
	s.onlookers.end(gone, errNoLonger)
	return gone
}

// SocketErr returns why no client can connect, such as a path that another program took, or nil.
func (s *Server) SocketErr() error { return s.socket.Err() }

// Serve serves until [Server.Close] and then returns nil. It logs what.
func (s *Server) Serve(what string) error {
	s.log.Info(what, "socket", s.socket.Addr().String())
	if err := s.grpc.Serve(limit(s.socket, s.log)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", s.socket.Addr().String(), err)
	}
	return nil
}

// Close calls end, which must end the streams, waits for connections to close until ctx
// ends, and removes the socket. It may be called twice.
func (s *Server) Close(ctx context.Context, end func()) error {
	s.health.Shutdown()
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		end()
		s.onlookers.close()
		s.grpc.GracefulStop()
	}()
	select {
	case <-quiet:
	case <-ctx.Done():
		s.grpc.Stop()
		<-quiet
	}
	return s.socket.Close()
}
