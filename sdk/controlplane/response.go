package controlplane

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// response is a state-of-the-world response: a batch, or the error that ends the
// stream.
type response struct {
	cachev3.PassthroughResponse
	batch batch
	ctx   context.Context
	err   error
	taken func()
}

func newResponse(req *cachev3.Request, b batch, err error, taken func()) *response {
	out := &discoveryv3.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: xds.VersionOf(b.resources)}
	for _, r := range b.resources {
		out.Resources = append(out.Resources, r.Body)
	}
	return &response{
		PassthroughResponse: cachev3.PassthroughResponse{Request: req, DiscoveryResponse: out},
		batch:               b, ctx: context.Background(), err: err, taken: taken,
	}
}

// GetDiscoveryResponse returns the response; the server calls it just before sending.
func (r *response) GetDiscoveryResponse() (*discoveryv3.DiscoveryResponse, error) {
	r.taken()
	return r.DiscoveryResponse, r.err
}

// GetReturnedResources returns what the client then has. The server calls it after assigning a nonce.
func (r *response) GetReturnedResources() map[string]string {
	return r.batch.returned(r.DiscoveryResponse.GetNonce())
}

func (r *response) GetContext() context.Context { return r.ctx }

// deltaResponse is the incremental counterpart of response.
type deltaResponse struct {
	cachev3.DeltaPassthroughResponse
	batch batch
	err   error
	taken func()
}

func newDeltaResponse(req *cachev3.DeltaRequest, b batch, err error, taken func()) *deltaResponse {
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: TypeURL, SystemVersionInfo: xds.VersionOf(b.resources), RemovedResources: b.removed}
	for _, r := range b.resources {
		out.Resources = append(out.Resources, &discoveryv3.Resource{Name: r.Name, Version: r.Version, Resource: r.Body})
	}
	return &deltaResponse{
		DeltaPassthroughResponse: cachev3.DeltaPassthroughResponse{DeltaRequest: req, DeltaDiscoveryResponse: out},
		batch:                    b, err: err, taken: taken,
	}
}

// GetDeltaDiscoveryResponse returns the response; the server calls it just before sending.
func (r *deltaResponse) GetDeltaDiscoveryResponse() (*discoveryv3.DeltaDiscoveryResponse, error) {
	r.taken()
	return r.DeltaDiscoveryResponse, r.err
}

// GetReturnedResources returns what the client then has. The server calls it after assigning a nonce.
func (r *deltaResponse) GetReturnedResources() map[string]string {
	return r.batch.returned(r.DeltaDiscoveryResponse.GetNonce())
}

// GetNextVersionMap is the former name of GetReturnedResources, which v0.14.0 servers still call.
func (r *deltaResponse) GetNextVersionMap() map[string]string { return r.GetReturnedResources() }

func (r *deltaResponse) GetContext() context.Context { return context.Background() }
