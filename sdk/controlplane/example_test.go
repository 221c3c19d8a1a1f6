package controlplane_test

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/controlplane"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Secrets beside the snapshots of a control plane.
func ExampleNew() {
	var secrets secret.Source // a *secret.Manager, say
	held, err := controlplane.New(controlplane.Config{
		Secrets: secrets,
		Caller: func(node *corev3.Node) (secret.Caller, error) {
			return secret.Caller{ID: "node:" + node.GetId()}, nil // that is the peer's: see Config
		},
	})
	if err != nil {
		panic(err)
	}
	snapshots := cachev3.NewSnapshotCache(true, cachev3.IDHash{}, nil)
	place := func(typeURL string) string {
		if typeURL == controlplane.TypeURL {
			return "secrets"
		}
		return "snapshots"
	}
	mux := &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return place(r.GetTypeUrl()) },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return place(r.GetTypeUrl()) },
		Caches:        map[string]cachev3.Cache{"secrets": held, "snapshots": snapshots},
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(context.Background(), mux, nil))
}
