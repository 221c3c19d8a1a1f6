package istioca

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/countersign-dev/countersign/internal/inbound"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/strangers"
)

// maxHeaders bounds the metadata of a call in bytes, a token included. gRPC reads it before
// a caller is authenticated.
const maxHeaders = strangers.MaxToken + 8<<10

// Server serves Istio's CA API. Its methods are safe for concurrent use. Create one with
// [New].
type Server struct {
	cfg Config
	// What strangers may use, and what authenticated callers may.
	connections, authenticating, calls *strangers.Places
	unknown                            *strangers.Unknown
	repeats                            loglimit.Repeats // log lines of the same client

	ending context.Context // ends when the server drains
	drain  context.CancelFunc
	runs   atomic.Bool

	callers atomic.Pointer[callers]
}

// New returns a server, or an error if a setting is missing or invalid. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	l, t := cfg.Limits, cfg.Times
	s := &Server{
		cfg: cfg, connections: strangers.NewPlaces(l.Connections, l.ConnectionsOfAddress),
		authenticating: strangers.NewPlaces(l.Authentications, l.AuthenticationsOfAddress),
		calls:          strangers.NewPlaces(l.Calls, l.CallsOfCaller),
		unknown:        strangers.NewUnknown(l.Authentications, l.AuthenticationsOfAddress, t.Handshake+t.Authenticate),
	}
	s.ending, s.drain = context.WithCancel(context.Background())
	s.take(cfg)
	return s, nil
}

// Run serves until ctx ends, then drains: calls that are held end at once, those that are
// being authenticated within [Times.Drain]. It closes the listener and returns when all
// goroutines are done, with nil or the listener's error. A server runs once.
func (s *Server) Run(ctx context.Context, on net.Listener) error {
	if s.runs.Swap(true) {
		return errors.New("istioca: Run called twice")
	}
	server := s.newGRPC()
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- server.Serve(s.limited(on)) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.stop(server)
	serving.Wait()
	if err != nil {
		return fmt.Errorf("istioca: serve %s: %w", on.Addr(), err)
	}
	return nil
}

// handlers are the goroutines that answer calls, one after the other: a new one's stack would grow anew
// for each signature. Calls beyond these have one each.
const handlers = 64

func (s *Server) newGRPC() *grpc.Server {
	l, t := s.cfg.Limits, s.cfg.Times
	server := grpc.NewServer(
		grpc.Creds(inbound.Process().Credentials(credentials.NewTLS(s.tlsConfig()), s.cfg.Log)),
		// TLS reads whole records ahead.
		grpc.ReadBufferSize(0),
		grpc.MaxRecvMsgSize(l.Message),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(64<<10),                                // one that grows lets a stream send 16 MiB unread
		grpc.MaxConcurrentStreams(uint32(min(l.CallsOfConnection, 1<<20))), // #nosec G115 -- bounded
		grpc.ConnectionTimeout(t.Handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: t.PingEvery, Timeout: t.PingTimeout, MaxConnectionIdle: t.Idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: t.PingAtMost, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(handlers),
	)
	server.RegisterService(s.service(), nil)
	return server
}

// tlsConfig speaks TLS 1.3 alone, as all clients do. It asks for a client certificate only
// while some are renewed by it, and verifies none: that is done for each call without a token,
// as a connection outlives certificates and settings.
func (s *Server) tlsConfig() *tls.Config {
	c := s.cfg.TLS.Clone()
	c.ClientAuth, c.ClientCAs = tls.NoClientCert, nil
	c.VerifyConnection, c.VerifyPeerCertificate = nil, nil
	c.MinVersion = tls.VersionTLS13
	c.NextProtos = []string{"h2"} // gRPC sees to it in one of the two alone
	asking := c.Clone()
	asking.ClientAuth = tls.RequestClientCert
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if s.callers.Load().Renewals.on() {
			return asking, nil
		}
		return nil, nil
	}
	return c
}

// limited returns the listener with a limited number of connections.
func (s *Server) limited(on net.Listener) net.Listener {
	return &strangers.Listener{Listener: on, Places: s.connections, Unknown: s.unknown, Full: func(conn net.Conn, full error) {
		s.cfg.Observe(Event{Result: limitOf(full)})
		if suppressed, ok := s.repeats.Allow(strangers.HostOf(conn.RemoteAddr()), time.Now()); ok {
			s.cfg.Log.Warn("too many connections, closing a new one", "reason", string(limitOf(full)), "peer", conn.RemoteAddr().String(), "suppressed", suppressed)
		}
	}}
}

// stop sends GOAWAY, waits for the calls, and ends those that take too long.
func (s *Server) stop(server *grpc.Server) {
	s.drain()
	late := time.AfterFunc(s.cfg.Times.Drain, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}
