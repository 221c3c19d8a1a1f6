package sds

import (
	"context"
	"log/slog"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// ServiceConfig is what a [Service] is made of.
type ServiceConfig struct {
	// Secrets are what is served. Required.
	Secrets secret.Source
	// Admit returns who calls, or a status error; see [xds.Config]. Required.
	Admit func(context.Context) (secret.Caller, error)
	// Observe is told what happens on streams. It must not block. Default: nobody.
	Observe func(xds.Event[secret.Caller])
	// Limits bound what a client may ask for.
	Limits xds.Limits
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Service is Envoy's SecretDiscoveryService, state-of-the-world and incremental.
type Service struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	engine *xds.Engine[secret.Caller]
}

// NewService returns a service that [Service.Register] puts on a gRPC server.
func NewService(cfg ServiceConfig) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	engine, err := xds.New(xds.Config[secret.Caller]{
		Types: []xds.Type[secret.Caller]{{URL: TypeURL, Source: &source{Source: cfg.Secrets, log: cfg.Log}}},
		Admit: cfg.Admit, Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Service{engine: engine}, nil
}

// Register puts the service on a gRPC server.
func (s *Service) Register(on grpc.ServiceRegistrar) {
	secretv3.RegisterSecretDiscoveryServiceServer(on, s)
}

// StreamSecrets serves one state-of-the-world stream.
func (s *Service) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return s.engine.Stream(stream, TypeURL)
}

// DeltaSecrets serves one incremental stream.
func (s *Service) DeltaSecrets(stream secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return s.engine.StreamDelta(stream, TypeURL)
}

// FetchSecrets answers once, and waits for secrets that are not ready.
func (s *Service) FetchSecrets(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return s.engine.Fetch(ctx, req, TypeURL)
}

// End ends the streams of the callers that match with a status error, and returns
// how many; see [xds.Engine.End].
func (s *Service) End(match func(secret.Caller) bool, err error) int { return s.engine.End(match, err) }

// Streams returns how many streams and fetches are open.
func (s *Service) Streams() int { return s.engine.Streams() }

// Close ends all streams with Unavailable and refuses later ones.
func (s *Service) Close() { s.engine.Close(nil) }
