package broker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/internal/grpcsocket"
	"github.com/countersign-dev/countersign/sdk/internal/unixcaller"
	"github.com/countersign-dev/countersign/sdk/internal/workload"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

const (
	// header has to be "true" in the metadata of each call (SPIFFE Broker Endpoint, section 6).
	header = "broker.spiffe.io"
	// maxMessage bounds a request, in bytes.
	maxMessage = 64 << 10
	// maxAge is how long a connection lasts, and up to a tenth longer: an hour at most, as it outlives the
	// broker's certificate.
	maxAge = 54 * time.Minute
)

// Server serves the Broker API. Create one with [Listen]. Its methods are safe for concurrent use.
type Server struct {
	api       *workloadapi.Service
	socket    *grpcsocket.Server
	resolvers map[Reference]Resolver
	sessions  Sessions
	own       string
	tell      func(Outcome)
	log       *slog.Logger
	repeats   loglimit.Repeats

	mu       sync.RWMutex
	accounts map[string]*account // of the brokers on the list, by SPIFFE ID
}

// Listen binds the socket or address; [Server.Serve] answers, and connections made before it wait.
// Handshakes fail until the certificate of Config.TLS is there.
func Listen(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{resolvers: cfg.Resolvers, sessions: cfg.Sessions, own: cfg.Own, tell: cfg.Observe, log: cmp.Or(cfg.Log, slog.Default())}
	err := s.SetBrokers(cfg.Brokers)
	if err != nil {
		return nil, err
	}
	if s.api, err = workloadapi.NewService(workloadapi.ServiceConfig{Offer: cfg.Offer, Secrets: cfg.Secrets, Admit: workload.Admit, Header: header, Log: s.log}); err != nil {
		return nil, err
	}
	cfg.TLS.Peer = s.authorize
	over, err := tlsconfig.Server(cfg.TLS)
	if err != nil {
		return nil, err
	}
	over.SessionTicketsDisabled = true // each connection shows its certificate
	s.socket, err = grpcsocket.Listen(grpcsocket.Config{
		Path: cfg.Path, Mode: cfg.Mode, Address: cfg.Address, TLS: over, MaxAge: maxAge, MaxMessage: maxMessage,
		Serving: func() bool { return unixcaller.Serving(cfg.Secrets) }, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	broker.RegisterAPIServer(s.socket, service{Server: s})
	return s, nil
}

// Serve answers until [Server.Close] and then returns nil.
func (s *Server) Serve() error { return s.socket.Serve("the Broker API is served") }

// Streams returns how many streams are open.
func (s *Server) Streams() int { return s.api.Streams() }

// SocketErr returns why no broker can connect, or nil. The server listens again when the socket's file
// was removed.
func (s *Server) SocketErr() error { return s.socket.SocketErr() }

// Close ends the streams with Unavailable, waits until ctx ends for connections to close, and removes
// the socket. It may be called twice.
func (s *Server) Close(ctx context.Context) error { return s.socket.Close(ctx, s.api.Close) }

func (s *Server) observe(outcome Outcome) {
	if s.tell != nil {
		s.tell(outcome)
	}
}

// refused logs a refusal, once a minute for each broker and kind.
func (s *Server) refused(a *account, reference *anypb.Any, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	kind := string(outcomeOf(err))
	if suppressed, ok := s.repeats.Allow(a.id+" "+kind, time.Now()); ok {
		s.log.Warn("a broker gets no secrets of a workload", "broker", a.id, "reference", text.Clean(reference.GetTypeUrl()),
			"error", text.Clean(status.Convert(err).Message()), "suppressed", suppressed)
	}
}
