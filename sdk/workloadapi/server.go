package workloadapi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/host/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Config is where, to whom and what is served.
type Config struct {
	Offer
	// Path of the unix socket, 107 bytes at most. Its folder is made (mode 0700)
	// where it is missing. Workloads find it by SPIFFE_ENDPOINT_SOCKET=unix://<path>.
	// Required.
	Path string
	// Mode of the socket's file. Default: 0600.
	Mode fs.FileMode
	// Policy says which peers are answered. Default: the own user and root.
	Policy unixpeer.Policy
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Server serves the Workload API on a unix socket. Make one with [Listen].
type Server struct {
	service *Service
	socket  *grpcsocket.Server
}

// Listen takes the socket; [Server.Serve] answers. Connections that come between the
// two wait.
func Listen(cfg Config, secrets secret.Source) (*Server, error) {
	if cfg.Path == "" {
		return nil, errors.New("workloadapi: Config.Path is empty; name the unix socket")
	}
	if _, err := cfg.checked(); err != nil {
		return nil, err // before a socket is taken
	}
	socket, err := grpcsocket.Listen(grpcsocket.Config{Path: cfg.Path, Mode: cfg.Mode, Policy: cfg.Policy, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	service, err := NewService(ServiceConfig{Offer: cfg.Offer, Secrets: secrets, Admit: socket.Admit, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, socket.Close(context.Background(), func() {}))
	}
	service.Register(socket)
	return &Server{service, socket}, nil
}

// Serve answers until [Server.Close]; it then returns nil.
func (s *Server) Serve() error { return s.socket.Serve("the Workload API is served") }

// Streams returns how many streams are open.
func (s *Server) Streams() int { return s.service.Streams() }

// SetPolicy says from now on which peers are answered. The streams of those that it
// no longer admits are ended with PermissionDenied, all others stay; it returns how
// many were ended.
func (s *Server) SetPolicy(p unixpeer.Policy) int {
	gone := s.socket.SetPolicy(p)
	return s.service.End(gone, status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer"))
}

// Close ends the streams with Unavailable, waits for connections to close until ctx
// ends, and removes the socket. It may be called twice.
func (s *Server) Close(ctx context.Context) error { return s.socket.Close(ctx, s.service.Close) }
