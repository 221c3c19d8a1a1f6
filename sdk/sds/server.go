package sds

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/secret"
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

// Server serves secrets on a unix socket. Make one with [Listen].
type Server struct {
	service *Service
	socket  *grpcsocket.Server
}

// Listen takes the socket; [Server.Serve] answers. Connections that come between
// the two wait.
func Listen(cfg Config, secrets secret.Source) (*Server, error) {
	if cfg.Path == "" {
		return nil, errors.New("sds: Config.Path is empty; name the unix socket")
	}
	socket, err := grpcsocket.Listen(grpcsocket.Config{
		Path: cfg.Path, Mode: cfg.Mode, Policy: cfg.Policy, Handshake: cfg.Handshake, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	service, err := NewService(ServiceConfig{
		Secrets: secrets, Admit: socket.Admit, Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, socket.Close(context.Background(), func() {}))
	}
	service.Register(socket)
	healthv1.RegisterHealthServer(socket, health.NewServer()) // "" is serving from the start
	return &Server{service, socket}, nil
}

// Serve answers until [Server.Close]; it then returns nil.
func (s *Server) Serve() error { return s.socket.Serve("secrets are served") }

// Streams returns how many streams and fetches are open.
func (s *Server) Streams() int { return s.service.Streams() }

// End ends the streams of the callers that match with a status error, and returns
// how many: for a policy that no longer admits them.
func (s *Server) End(match func(secret.Caller) bool, err error) int { return s.service.End(match, err) }

// SetPolicy says from now on which peers are answered. The streams of those that it
// no longer admits are ended with PermissionDenied, all others stay; it returns how
// many were ended.
func (s *Server) SetPolicy(p Policy) int {
	return s.End(s.socket.SetPolicy(p), status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer"))
}

// Close ends the streams with Unavailable, waits for connections to close until
// ctx ends, and removes the socket. It may be called twice.
func (s *Server) Close(ctx context.Context) error { return s.socket.Close(ctx, s.service.Close) }
