package sds

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/internal/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/internal/unixcaller"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Config configures a [Server].
type Config struct {
	// Resources are served instead of secrets; see [ServiceConfig].
	Resources xds.Source[secret.Caller]
	// SPIRE serves secrets by SPIRE's names, too; see [ServiceConfig].
	SPIRE *SPIRE
	// Path of the unix socket, or unix:///path, 107 bytes at most. A missing directory is created with
	// mode 0700. Required.
	Path string
	// Mode is the mode of the socket file. Default: 0600.
	Mode fs.FileMode
	// Policy decides which peers are served. Default: the agent's own user and root.
	Policy Policy
	// Sessions separates the streams of one peer by their tokens; see [ServiceConfig].
	Sessions     Sessions
	TokenHeaders []string
	// Limits bounds what a client may request.
	Limits xds.Limits
	// Recycle is how long a stream may owe a message, its first request or an ACK or
	// NACK, before it ends with Unavailable. It is also the check interval. Default: 0,
	// no limit.
	Recycle time.Duration
	// Handshake is how long a new connection may take to speak HTTP/2 before it is
	// closed. Default: 10 s.
	Handshake time.Duration
	// Beside makes another service for the same socket, with the function that returns the
	// caller of an RPC or the status to end it with. Default: none.
	Beside func(admit func(context.Context) (secret.Caller, error)) (Companion, error)
	// Observe receives stream events. It must not block. Default: none.
	Observe func(xds.Event[secret.Caller])
	// Log never receives a key. Default: [slog.Default].
	Log *slog.Logger
}

// Companion is a service beside SDS, such as that of package workloadapi.
type Companion interface {
	Register(grpc.ServiceRegistrar)
	// Streams returns how many streams are open.
	Streams() int
	// End ends the streams of matching callers with a status error and returns how many.
	End(match func(secret.Caller) bool, err error) int
	// Close ends all streams and refuses new ones.
	Close()
}

// Server serves secrets on a unix socket. Its methods are safe for concurrent use.
// Create one with [Listen].
type Server struct {
	service *Service
	beside  Companion // nil for none
	socket  *grpcsocket.Server
	recycle time.Duration
	over    chan struct{} // closed by the first Close
	once    sync.Once
	log     *slog.Logger
}

// Listen binds the socket; [Server.Serve] answers, and connections made before it wait.
// The error is about the path: it is too long, its directory cannot be
// created, it is not a socket, or another process serves it. The socket's gRPC health is SERVING
// while secrets with a Status method, such as a [secret.Manager], hold a certificate, or a bundle if
// they have no certificates; it is always SERVING for a source without that method.
func Listen(cfg Config, secrets secret.Source) (*Server, error) {
	if cfg.Path == "" {
		return nil, errors.New("sds: Config.Path is empty; name the unix socket")
	}
	socket, err := grpcsocket.Listen(grpcsocket.Config{
		Path: cfg.Path, Mode: cfg.Mode, Policy: cfg.Policy, MaxMessage: maxMessage(cfg.Limits), Handshake: cfg.Handshake, Serving: func() bool { return unixcaller.Serving(secrets) }, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	service, err := NewService(ServiceConfig{
		Secrets: secrets, Resources: cfg.Resources, SPIRE: cfg.SPIRE, Admit: unixcaller.Admit(socket.Admit), Sessions: cfg.Sessions, TokenHeaders: cfg.TokenHeaders,
		Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, socket.Close(context.Background(), func() {}))
	}
	service.Register(socket)
	service.RegisterAggregated(socket)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Server{service: service, socket: socket, recycle: cfg.Recycle, over: make(chan struct{}), log: cfg.Log}
	if err := s.share(cfg.Beside); err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

// maxMessage returns the most bytes of a request, 0 for the usual number: a client that connects again
// lists all names that it has, with their versions.
func maxMessage(l xds.Limits) int {
	const usualNames, each, most = 10_000, 400, 64 << 20
	if l.MaxNames <= usualNames {
		return 0
	}
	return min(max(4<<20, l.MaxNames*each), most)
}

// share registers another service on the socket, where there is one.
func (s *Server) share(open func(func(context.Context) (secret.Caller, error)) (Companion, error)) error {
	if open == nil {
		return nil
	}
	beside, err := open(unixcaller.Admit(s.socket.Admit))
	if err != nil {
		return err
	}
	s.beside = beside
	beside.Register(s.socket)
	return nil
}

// Serve answers until [Server.Close] and then returns nil. It may be called once. An
// error comes from the socket.
func (s *Server) Serve() error {
	if s.recycle > 0 {
		quiet := make(chan struct{})
		go func() { defer close(quiet); s.endSilent() }()
		defer func() { s.stop(); <-quiet }()
	}
	return s.socket.Serve("secrets are served")
}

// endSilent ends streams that have owed a message for too long, until Close.
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

// RootAcknowledged is [Service.RootAcknowledged] for this socket.
func (s *Server) RootAcknowledged(bundles []string, root string) bool {
	return s.service.RootAcknowledged(bundles, root)
}

// SocketErr returns why no client can connect, or nil. The server listens again when the socket's
// file was removed, so an error lasts only while it cannot.
func (s *Server) SocketErr() error { return s.socket.SocketErr() }

// Streams returns how many streams and fetches are open.
func (s *Server) Streams() int {
	n := s.service.Streams()
	if s.beside != nil {
		n += s.beside.Streams()
	}
	return n
}

// End ends the streams of matching callers with a status error and returns how many,
// for policies that no longer admit them.
func (s *Server) End(match func(secret.Caller) bool, err error) int {
	n := s.service.End(match, err)
	if s.beside != nil {
		n += s.beside.End(match, err)
	}
	return n
}

// SetPolicy changes which peers are served. It ends streams of peers no longer admitted
// with PermissionDenied and returns how many; all others continue.
func (s *Server) SetPolicy(p Policy) int {
	return s.End(unixcaller.Match(s.socket.SetPolicy(p)), status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer"))
}

// Close ends the streams with Unavailable, waits until ctx ends for connections to
// close, and removes the socket, even if the server never served. It may be called
// twice. An error concerns the socket file.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	return s.socket.Close(ctx, func() {
		s.service.Close()
		if s.beside != nil {
			s.beside.Close()
		}
	})
}
