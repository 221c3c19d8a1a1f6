package sds

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// RegisterAggregated registers the service as Envoy's AggregatedDiscoveryService, too. One of its
// streams carries any number of secrets, where Envoy opens an SDS stream for each. A request of
// another type than [TypeURL] ends its stream with InvalidArgument. A gRPC server has one
// AggregatedDiscoveryService, so do not call it where another serves ADS.
func (s *Service) RegisterAggregated(on grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(on, aggregated{service: s})
}

// aggregated serves the secrets of a service over ADS.
type aggregated struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	service *Service
}

// StreamAggregatedResources serves one state-of-the-world stream.
func (a aggregated) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serveStream(a.service, stream, a.service.engine.Stream)
}

// DeltaAggregatedResources serves one incremental stream.
func (a aggregated) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serveStream(a.service, stream, a.service.engine.StreamDelta)
}
