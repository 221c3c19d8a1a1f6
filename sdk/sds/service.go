package sds

import (
	"context"
	"errors"
	"log/slog"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// ServiceConfig is what a [Service] is made of.
type ServiceConfig struct {
	// Secrets are what is served. Required, where there are no Resources.
	Secrets secret.Source
	// Resources are of the type [TypeURL], made by somebody else, and served in place of
	// Secrets. Default: those of Secrets.
	Resources xds.Source[secret.Caller]
	// Admit returns who calls, or a status error; see [xds.Config]. Required.
	Admit func(context.Context) (secret.Caller, error)
	// Sessions tells the streams of one peer apart by their tokens, which are looked for
	// in TokenHeaders, in lower case. Default: streams are their peer's;
	// [DefaultTokenHeaders].
	Sessions     Sessions
	TokenHeaders []string
	// Observe is told what happens on streams. It must not block. Default: nobody.
	Observe func(xds.Event[secret.Caller])
	// Limits bound what a client may ask for.
	Limits xds.Limits
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Service is Envoy's SecretDiscoveryService, state-of-the-world and incremental. Its
// methods may be called by any number of goroutines at once.
type Service struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	engine    *xds.Engine[secret.Caller]
	admitPeer func(context.Context) (secret.Caller, error)
	sessions  Sessions
	headers   []string
}

// NewService returns a service that [Service.Register] puts on a gRPC server. It starts
// nothing. What is required and missing is an error.
func NewService(cfg ServiceConfig) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{admitPeer: cfg.Admit, sessions: cfg.Sessions, headers: cfg.TokenHeaders}
	if cfg.Admit == nil {
		return nil, errors.New("sds: ServiceConfig.Admit is required")
	}
	if len(s.headers) == 0 {
		s.headers = DefaultTokenHeaders
	}
	if cfg.Resources == nil {
		cfg.Resources = &source{Source: cfg.Secrets, log: cfg.Log}
	}
	engine, err := xds.New(xds.Config[secret.Caller]{
		Types: []xds.Type[secret.Caller]{{URL: TypeURL, Source: cfg.Resources}},
		Admit: s.admit, Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s.engine = engine
	return s, nil
}

// Register puts the service on a gRPC server.
func (s *Service) Register(on grpc.ServiceRegistrar) {
	secretv3.RegisterSecretDiscoveryServiceServer(on, s)
}

// StreamSecrets serves one state-of-the-world stream.
func (s *Service) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return serveStream(s, stream, s.engine.Stream)
}

// DeltaSecrets serves one incremental stream.
func (s *Service) DeltaSecrets(stream secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return serveStream(s, stream, s.engine.StreamDelta)
}

// FetchSecrets answers once, and waits for secrets that are not ready until ctx ends; see
// [xds.Engine.Fetch].
func (s *Service) FetchSecrets(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	if s.sessions == nil {
		return s.engine.Fetch(ctx, req, TypeURL)
	}
	ctx, caller, err := s.join(ctx)
	if err != nil {
		return nil, err
	}
	defer s.sessions.Leave(caller)
	return s.engine.Fetch(ctx, req, TypeURL)
}

// End ends the streams of the callers that match with a status error, and returns
// how many; see [xds.Engine.End].
func (s *Service) End(match func(secret.Caller) bool, err error) int { return s.engine.End(match, err) }

// EndSilent ends the streams that have owed a word for so long; see
// [xds.Engine.EndSilent].
func (s *Service) EndSilent(since time.Duration) int {
	return s.engine.EndSilent(time.Now().Add(-since), status.Errorf(codes.Unavailable, "nothing was heard of this stream for %s", since))
}

// Streams returns how many streams and fetches are open.
func (s *Service) Streams() int { return s.engine.Streams() }

// Close ends all streams with Unavailable and refuses later ones.
func (s *Service) Close() { s.engine.Close(nil) }
