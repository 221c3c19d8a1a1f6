package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/countersign-dev/countersign/internal/inbound"
	"github.com/countersign-dev/countersign/internal/strangers"
)

const (
	// maxHeaders is the maximum size of an RPC's metadata in bytes, a token included. gRPC
	// reads it before the server can refuse the stream as one too many.
	maxHeaders = strangers.MaxToken + 8<<10
	// grace is how long clients may take to disconnect once all streams have ended.
	grace = 5 * time.Second
)

// Listeners are the listeners of a server: one or both. The server closes them.
type Listeners struct {
	// TLS requires [Config].TLS.
	TLS net.Listener
	// Plaintext serves clients that cannot authenticate by certificate.
	Plaintext net.Listener
}

// serving is a gRPC server with its listener.
type serving struct {
	*grpc.Server
	on net.Listener
}

// Run serves until ctx ends, then drains: it refuses new streams, sends GOAWAY on
// connections and ends the streams one after the other within [Times].Drain. It returns
// when all goroutines are done, with nil or the error of a listener. A server runs
// once.
func (s *Server) Run(ctx context.Context, on Listeners) error {
	all, err := s.servers(on)
	if err != nil {
		return err
	}
	clock, stop := context.WithCancel(context.WithoutCancel(ctx))
	var quiet sync.WaitGroup
	defer quiet.Wait()
	defer stop()
	quiet.Go(func() { s.keepTime(clock) })
	failed := make(chan error, len(all))
	for _, each := range all {
		quiet.Go(func() { failed <- each.serve() })
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain(all)
	return err
}

func (s serving) serve() error {
	if err := s.Serve(s.on); err != nil {
		return fmt.Errorf("discovery: serve %s: %w", s.on.Addr(), err)
	}
	return nil
}

// servers creates the gRPC servers for the listeners.
func (s *Server) servers(on Listeners) (all []serving, err error) {
	switch {
	case on.TLS == nil && on.Plaintext == nil:
		return nil, errors.New("discovery: no listener")
	case on.TLS != nil && s.cfg.TLS == nil:
		return nil, errors.New("discovery: the TLS listener needs Config.TLS")
	case s.runs.Swap(true):
		return nil, errors.New("discovery: Run called twice")
	}
	if on.TLS != nil {
		// TLS reads whole records ahead: a second buffer of 32 KiB would be half of
		// what a stream costs.
		server := s.newGRPC(grpc.Creds(inbound.Process().Credentials(credentials.NewTLS(s.tlsConfig()), s.cfg.Log)), grpc.ReadBufferSize(0))
		all = append(all, serving{server, s.limited(on.TLS)})
	}
	if on.Plaintext != nil {
		s.cfg.Log.Warn("also serving streams without TLS", "address", on.Plaintext.Addr().String(), "tokens", s.cfg.AllowTokenOverPlaintext)
		all = append(all, serving{s.newGRPC(grpc.Creds(inbound.Process().Credentials(insecure.NewCredentials(), s.cfg.Log))), s.limited(on.Plaintext)})
	}
	return all, nil
}

// tlsConfig requests a client certificate but verifies none: a handshake must not fail
// where a token would do, and only the authenticator has the roots of each trust
// domain. The client still proves possession of the certificate's key.
func (s *Server) tlsConfig() *tls.Config {
	c := s.cfg.TLS.Clone()
	c.ClientAuth, c.ClientCAs = tls.RequestClientCert, nil
	c.VerifyConnection, c.VerifyPeerCertificate = nil, nil
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

func (s *Server) newGRPC(own ...grpc.ServerOption) *grpc.Server {
	t := s.cfg.Times
	server := grpc.NewServer(append(own,
		grpc.ForceServerCodecV2(s.engine.Codec()),
		grpc.MaxRecvMsgSize(s.cfg.Limits.Message),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(64<<10),                                             // one that grows lets a stream send 16 MiB unread
		grpc.MaxConcurrentStreams(uint32(min(s.cfg.Limits.StreamsOfConnection, 1<<20))), // #nosec G115 -- bounded
		grpc.ConnectionTimeout(t.Handshake),
		// Connections have no age limit of their own: their streams have.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: t.PingEvery, Timeout: t.PingTimeout, MaxConnectionIdle: t.Idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: t.PingAtMost, PermitWithoutStream: true}),
	)...)
	s.register(server)
	return server
}

// drain ends all streams over a while, then ends the rest at once.
func (s *Server) drain(all []serving) {
	s.sessions.drain()
	s.cfg.Log.Info("shutting down", "streams", s.engine.Streams(), "over", s.cfg.Times.Drain)
	patience := time.NewTimer(s.cfg.Times.Drain + grace)
	defer patience.Stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var each sync.WaitGroup
		for _, server := range all {
			each.Go(server.GracefulStop) // sends GOAWAY first
		}
		each.Wait()
	}()
	select {
	case <-gone:
	case <-patience.C:
		s.cfg.Log.Warn("closing connections that did not drain in time")
		for _, server := range all {
			server.Stop()
		}
		<-gone
	}
	s.engine.Close(endings[drained].status)
}

// limited returns the listener with a limited number of connections.
func (s *Server) limited(on net.Listener) net.Listener {
	return &strangers.Listener{Listener: on, Places: s.connections, Unknown: s.unknown, Full: func(conn net.Conn, full error) {
		limit := limitOf(full)
		s.metrics.refuse(limit)
		s.say("too many connections, closing a new one", "reason", string(limit), "peer", conn.RemoteAddr().String())
	}}
}
