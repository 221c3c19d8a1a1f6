package sds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/unixsocket"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Config is where, to whom and how secrets are served.
type Config struct {
	// Path of the unix socket, 107 bytes at most. Its folder is made (mode 0700)
	// where it is missing. Required.
	Path string
	// Mode of the socket's file. Default: 0600.
	Mode fs.FileMode
	// Policy says which peers are answered. Default: the own user and root.
	Policy Policy
	// Limits bound what a client may ask for.
	Limits xds.Limits
	// Handshake is how long a new connection may take until it speaks HTTP/2; then
	// it is closed. Default: 10 s.
	Handshake time.Duration
	// Observe is told what happens on streams. It must not block. Default: nobody.
	Observe func(xds.Event[secret.Caller])
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

const (
	// maxMessage and maxHeaders bound one message and its metadata, in bytes.
	maxMessage = 4 << 20
	maxHeaders = 64 << 10
	// maxStreams of one connection: Envoy has one for each secret.
	maxStreams = 10_000
	// A peer that is gone without a word is noticed after these.
	pingEvery, pingTimeout = time.Minute, 20 * time.Second
	// maxIdle is how long a connection without a stream is kept: clients come again.
	maxIdle = 5 * time.Minute
)

// Server serves secrets on a unix socket. Make one with [Listen].
type Server struct {
	service *Service
	grpc    *grpc.Server
	socket  *unixsocket.Socket
	policy  *atomic.Pointer[Policy]
	log     *slog.Logger
}

// Listen takes the socket; [Server.Serve] answers. Connections that come between
// the two wait.
func Listen(cfg Config, secrets secret.Source) (*Server, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	if unixpeer.MissingProtection != "" {
		cfg.Log.Warn("a protection is missing on this system", "missing", unixpeer.MissingProtection)
	}
	policy := &atomic.Pointer[Policy]{}
	policy.Store(&cfg.Policy)
	admit := func(ctx context.Context) (secret.Caller, error) { return policy.Load().Admit(ctx) }
	service, err := NewService(ServiceConfig{
		Secrets: secrets, Admit: admit, Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	socket, err := unixsocket.Listen(cfg.Path, cfg.Mode, cfg.Log)
	if err != nil {
		return nil, err
	}
	return &Server{service: service, grpc: newGRPC(cfg, service, admit), socket: socket, policy: policy, log: cfg.Log}, nil
}

// checked returns the config with its defaults filled in.
func (c Config) checked() (Config, error) {
	if c.Path == "" {
		return c, errors.New("sds: Config.Path is empty; name the unix socket")
	}
	if c.Mode == 0 {
		c.Mode = 0o600
	}
	if c.Handshake == 0 {
		c.Handshake = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func newGRPC(cfg Config, service *Service, admit func(context.Context) (secret.Caller, error)) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(unixpeer.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(cfg.Handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: maxIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// Whatever is asked, health included, only the right peer is answered.
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if _, err := admit(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if _, err := admit(stream.Context()); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	)
	service.Register(server)
	healthv1.RegisterHealthServer(server, health.NewServer()) // "" is serving from the start
	return server
}

// Serve answers until [Server.Close]; it then returns nil.
func (s *Server) Serve() error {
	s.log.Info("secrets are served", "socket", s.socket.Addr().String())
	if err := s.grpc.Serve(s.socket); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", s.socket.Addr().String(), err)
	}
	return nil
}

// Streams returns how many streams and fetches are open.
func (s *Server) Streams() int { return s.service.Streams() }

// End ends the streams of the callers that match with a status error, and returns
// how many: for a policy that no longer admits them.
func (s *Server) End(match func(secret.Caller) bool, err error) int { return s.service.End(match, err) }

// SetPolicy says from now on which peers are answered. The streams of those that it
// no longer admits are ended with PermissionDenied, all others stay; it returns how
// many were ended.
func (s *Server) SetPolicy(p Policy) int {
	s.policy.Store(&p)
	gone := func(c secret.Caller) bool { return p.Check(Peer{UID: c.UID, GID: c.GID, PID: c.PID}) != nil }
	return s.End(gone, status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer"))
}

// Close ends the streams with Unavailable, waits for connections to close until
// ctx ends, and removes the socket. It may be called twice.
func (s *Server) Close(ctx context.Context) error {
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		s.service.Close()
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
