package workloadapi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/internal/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/internal/unixcaller"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Config configures a [Server].
type Config struct {
	Offer
	// Path of the unix socket, 107 bytes at most. A missing directory is created with
	// mode 0700. Workloads find it through SPIFFE_ENDPOINT_SOCKET=unix://<path>.
	// Required.
	Path string
	// Mode is the mode of the socket file. Default: 0600.
	Mode fs.FileMode
	// Policy decides which peers are served. Default: the agent's own user and root.
	Policy unixpeer.Policy
	// Callers gives each caller an identity of its own; see [Callers]. Experimental. Default: all that
	// Policy admits get the same.
	Callers *Callers
	// Log never receives a key. Default: [slog.Default].
	Log *slog.Logger
}

// Server serves the Workload API on a unix socket. Create one with [Listen].
type Server struct {
	service *Service
	socket  *grpcsocket.Server
}

// Listen binds the socket; [Server.Serve] answers, and connections made before it wait. The
// socket's gRPC health is that of a socket of package sds.
func Listen(cfg Config, secrets secret.Source) (*Server, error) {
	if cfg.Path == "" {
		return nil, errors.New("workloadapi: Config.Path is empty; name the unix socket")
	}
	if _, err := cfg.checked(); errors.Join(err, cfg.Callers.check()) != nil {
		return nil, errors.Join(err, cfg.Callers.check()) // before binding the socket
	}
	socket, err := grpcsocket.Listen(grpcsocket.Config{Path: cfg.Path, Mode: cfg.Mode, Policy: cfg.Policy, Serving: func() bool { return unixcaller.Serving(secrets) }, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	service, err := NewService(ServiceConfig{Offer: cfg.Offer, Secrets: secrets, Admit: unixcaller.Admit(socket.Admit), Callers: cfg.Callers, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, socket.Close(context.Background(), func() {}))
	}
	service.Register(socket)
	return &Server{service, socket}, nil
}

// SocketErr returns why no client can connect, or nil. The server listens again when the socket's
// file was removed, so an error lasts only while it cannot.
func (s *Server) SocketErr() error { return s.socket.SocketErr() }

// Serve answers until [Server.Close] and then returns nil.
func (s *Server) Serve() error { return s.socket.Serve("the Workload API is served") }

// Streams returns how many streams are open.
func (s *Server) Streams() int { return s.service.Streams() }

// SetPolicy changes which peers are served. It ends streams of peers no longer admitted
// with PermissionDenied and returns how many; all others continue.
func (s *Server) SetPolicy(p unixpeer.Policy) int {
	gone := unixcaller.Match(s.socket.SetPolicy(p))
	return s.service.End(gone, status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer"))
}

// Close ends the streams with Unavailable, waits until ctx ends for connections to
// close, and removes the socket. It may be called twice.
func (s *Server) Close(ctx context.Context) error { return s.socket.Close(ctx, s.service.Close) }
