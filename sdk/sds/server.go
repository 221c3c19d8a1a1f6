package sds

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/host/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Config is where, to whom and how secrets are served.
type Config struct {
	// Resources are served in place of secrets; see [ServiceConfig].
	Resources xds.Source[secret.Caller]
	// Path of the unix socket, 107 bytes at most. Its folder is made (mode 0700)
	// where it is missing. Required.
	Path string
	// Mode of the socket's file. Default: 0600.
	Mode fs.FileMode
	// Policy says which peers are answered. Default: the own user and root.
	Policy Policy
	// Sessions tells the streams of one peer apart by their tokens; see
	// [ServiceConfig].
	Sessions     Sessions
	TokenHeaders []string
	// Limits bound what a client may ask for.
	Limits xds.Limits
	// Recycle is how long a stream may owe a word, its first request or an answer to
	// what it was sent; then it is ended with Unavailable. It is looked at that often.
	// Default: 0, for as long as it likes.
	Recycle time.Duration
	// Handshake is how long a new connection may take until it speaks HTTP/2; then
	// it is closed. Default: 10 s.
	Handshake time.Duration
	// Observe is told what happens on streams. It must not block. Default: nobody.
	Observe func(xds.Event[secret.Caller])
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Server serves secrets on a unix socket. Its methods may be called by any number of
// goroutines at once. Make one with [Listen].
type Server struct {
	service *Service
	socket  *grpcsocket.Server
	recycle time.Duration
	over    chan struct{} // closed by the first Close
	once    sync.Once
	log     *slog.Logger
}

// Listen takes the socket; [Server.Serve] answers. Connections that come between
// the two wait. An error says what is wrong with the path: it is too long, its
// folder cannot be made, what is there is no socket, or another process serves on it.
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
		Secrets: secrets, Resources: cfg.Resources, Admit: socket.Admit, Sessions: cfg.Sessions, TokenHeaders: cfg.TokenHeaders,
		Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, socket.Close(context.Background(), func() {}))
	}
	service.Register(socket)
	healthv1.RegisterHealthServer(socket, health.NewServer()) // "" is serving from the start
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{service: service, socket: socket, recycle: cfg.Recycle, over: make(chan struct{}), log: cfg.Log}, nil
}

// Serve answers until [Server.Close]; it then returns nil. It is called once; an error
// is the socket's.
func (s *Server) Serve() error {
	if s.recycle > 0 {
		quiet := make(chan struct{})
		go func() { defer close(quiet); s.endSilent() }()
		defer func() { s.stop(); <-quiet }()
	}
	return s.socket.Serve("secrets are served")
}

// endSilent ends the streams that owe a word for too long, until Close.
func (s *Server) endSilent() {
	ticker := time.NewTicker(s.recycle)
	defer ticker.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-ticker.C:
		}
		if n := s.service.EndSilent(s.recycle); n > 0 {
			s.log.Warn("closed unresponsive streams", "streams", n, "for", s.recycle)
		}
	}
}

func (s *Server) stop() { s.once.Do(func() { close(s.over) }) }

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
// ctx ends, and removes the socket. It may be called twice. A server that never served is
// closed by it, too; an error is about the socket's file.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	return s.socket.Close(ctx, s.service.Close)
}
