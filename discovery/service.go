package discovery

import (
	"context"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// The service names shown in the status.
const (
	adsStream = "ADS"
	adsDelta  = "ADS delta"
	sdsStream = "SDS"
	sdsDelta  = "SDS delta"
	sdsFetch  = "SDS fetch"
)

// register registers the services on a gRPC server.
func (s *Server) register(on grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(on, aggregated{server: s})
	if slices.Contains(s.urls, secretURL) {
		secretv3.RegisterSecretDiscoveryServiceServer(on, secrets{server: s})
	}
	healthv1.RegisterHealthServer(on, health{server: s})
}

// aggregated serves ADS, all types.
type aggregated struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

// StreamAggregatedResources serves one state-of-the-world stream.
func (a aggregated) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serve(a.server, stream, "", adsStream, a.server.engine.Stream)
}

// DeltaAggregatedResources serves one incremental stream.
func (a aggregated) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serve(a.server, stream, "", adsDelta, a.server.engine.StreamDelta)
}

// secrets serves SDS, the Secret type.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	server *Server
}

// StreamSecrets serves one state-of-the-world stream.
func (d secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return serve(d.server, stream, secretURL, sdsStream, d.server.engine.Stream)
}

// DeltaSecrets serves one incremental stream.
func (d secrets) DeltaSecrets(stream secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return serve(d.server, stream, secretURL, sdsDelta, d.server.engine.StreamDelta)
}

// FetchSecrets answers once; see [xds.Engine.Fetch].
func (d secrets) FetchSecrets(ctx context.Context, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	of, err := d.server.open(ctx, sdsFetch)
	if err != nil {
		return nil, err
	}
	defer d.server.sessions.leave(of)
	return d.server.engine.Fetch(context.WithValue(ctx, sessionKey{}, of), req, secretURL)
}

// stream is a stream whose context holds its session.
type stream[Q, R any] struct {
	xds.Stream[Q, R]
	ctx context.Context
}

// Context returns the stream's context with the session.
func (s stream[Q, R]) Context() context.Context { return s.ctx }

// ended frees what a stream counted against before its client can open the next one.
func (s *Server) ended(ctx context.Context) {
	if of := sessionOf(ctx); of != nil {
		s.sessions.leave(of)
	}
}

// serve admits and serves a stream.
func serve[Q, R any](s *Server, on xds.Stream[Q, R], implied, service string, run func(xds.Stream[Q, R], string) error) error {
	of, err := s.open(on.Context(), service)
	if err != nil {
		return err
	}
	defer s.sessions.leave(of)
	return run(stream[Q, R]{on, context.WithValue(on.Context(), sessionKey{}, of)}, implied)
}
