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

// ServiceConfig configures a [Service].
type ServiceConfig struct {
	// Secrets is the source to serve. Required unless Resources is set.
	Secrets secret.Source
	// Resources are of type [TypeURL] and are served instead of Secrets. Default: the
	// resources of Secrets.
	Resources xds.Source[secret.Caller]
	// SPIRE serves Secrets by SPIRE's names, too. Default: nil, by their own alone.
	SPIRE *SPIRE
	// Admit returns the caller or a status error; see [xds.Config]. Required.
	Admit func(context.Context) (secret.Caller, error)
	// Sessions separates the streams of one peer by their tokens, read from the
	// metadata keys TokenHeaders (lower case). Default: streams belong to their peer;
	// [DefaultTokenHeaders].
	Sessions     Sessions
	TokenHeaders []string
	// Observe receives stream events. It must not block. Default: none.
	Observe func(xds.Event[secret.Caller])
	// Limits bounds what a client may request.
	Limits xds.Limits
	// Log never receives a key. Default: [slog.Default].
	Log *slog.Logger
}

// Service is Envoy's SecretDiscoveryService, state of the world and incremental. Its
// methods are safe for concurrent use.
type Service struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	engine    *xds.Engine[secret.Caller]
	admitPeer func(context.Context) (secret.Caller, error)
	sessions  Sessions
	headers   []string
	spire     *spire // nil without SPIRE's names
}

// NewService returns a service for [Service.Register], or an error if a required
// setting is missing. It starts nothing.
func NewService(cfg ServiceConfig) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Service{admitPeer: cfg.Admit, sessions: cfg.Sessions, headers: cfg.TokenHeaders}
	if cfg.Admit == nil {
		return nil, errors.New("sds: ServiceConfig.Admit is required")
	}
	if len(s.headers) == 0 {
		s.headers = DefaultTokenHeaders
	}
	if err := s.serveSecrets(&cfg); err != nil {
		return nil, err
	}
	engine, err := xds.New(xds.Config[secret.Caller]{
		Types: []xds.Type[secret.Caller]{{URL: TypeURL, Source: cfg.Resources}},
		Admit: s.admit, Ended: ended, Observe: cfg.Observe, Limits: cfg.Limits, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s.engine = engine
	return s, nil
}

// serveSecrets has cfg serve its secrets, unless it has resources of its own.
func (s *Service) serveSecrets(cfg *ServiceConfig) error {
	if cfg.Resources != nil {
		return nil
	}
	plain := &source{Source: cfg.Secrets, log: cfg.Log}
	cfg.Resources = plain
	if cfg.SPIRE == nil {
		return nil
	}
	if err := cfg.SPIRE.check(); err != nil {
		return err
	}
	s.spire = newSPIRE(*cfg.SPIRE, plain)
	cfg.Resources = s.spire
	return nil
}

// Register registers the service on a gRPC server.
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

// FetchSecrets answers once and waits until ctx ends for secrets that are not ready;
// see [xds.Engine.Fetch].
func (s *Service) FetchSecrets(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	if s.sessions == nil {
		return s.engine.Fetch(ctx, req, TypeURL)
	}
	ctx, err := s.join(ctx)
	if err != nil {
		return nil, err
	}
	defer membershipOf(ctx).leave()
	return s.engine.Fetch(ctx, req, TypeURL)
}

// End ends the streams of matching callers with a status error and returns how many;
// see [xds.Engine.End].
func (s *Service) End(match func(secret.Caller) bool, err error) int { return s.engine.End(match, err) }

// EndSilent ends streams that have owed a message for that long; see
// [xds.Engine.EndSilent].
func (s *Service) EndSilent(since time.Duration) int {
	return s.engine.EndSilent(time.Now().Add(-since), status.Errorf(codes.Unavailable, "no activity on this stream for %s", since))
}

// RootAcknowledged reports whether each stream that has one of these trust bundles, by whatever
// name, has acknowledged a version with the root of that fingerprint; for [secret.Config].
func (s *Service) RootAcknowledged(bundles []string, root string) bool {
	if s.spire != nil {
		bundles = s.spire.bundles.known(bundles)
	}
	return s.engine.Acknowledged(TypeURL, bundles, root)
}

// Streams returns how many streams and fetches are open.
func (s *Service) Streams() int { return s.engine.Streams() }

// Close ends all streams with Unavailable and refuses new ones.
func (s *Service) Close() { s.engine.Close(nil) }
