package controlplane_test

import (
	"context"
	"net"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/controlplane"
)

const patience = 2 * time.Minute

// aggregated serves clusters from a snapshot and secrets from source on one ADS server.
func aggregated(t *testing.T, source *secrettest.Source) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	snapshots := cachev3.NewSnapshotCache(true, cachev3.IDHash{}, nil)
	snapshot, err := cachev3.NewSnapshot("1", map[resourcev3.Type][]types.Resource{resourcev3.ClusterType: {&clusterv3.Cluster{Name: "backend"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshots.SetSnapshot(t.Context(), "test", snapshot); err != nil {
		t.Fatal(err)
	}
	mux := &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cachev3.Cache{resourcev3.ClusterType: snapshots, controlplane.TypeURL: newCache(t, source)},
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, listener := grpc.NewServer(), bufconn.Listen(1<<20)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, mux, nil))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

func TestSecretsAndSnapshotShareAggregatedStream(t *testing.T) {
	source := secrettest.New(leaf("default", "1"), roots("1"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := aggregated(t, source).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(req *discoveryv3.DiscoveryRequest) {
		t.Helper()
		req.Node = &corev3.Node{Id: "test"}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.ClusterType})
	send(&discoveryv3.DiscoveryRequest{TypeUrl: controlplane.TypeURL, ResourceNames: []string{"default", "ROOTCA"}})
	got := map[string]int{}
	for range 3 {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got[r.TypeUrl] += len(r.Resources)
		if len(got) == 2 && got[controlplane.TypeURL] == 2 {
			source.Put(leaf("default", "2"))
		}
		send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce, ResourceNames: namesOf(r.TypeUrl)})
	}
	if got[resourcev3.ClusterType] != 1 || got[controlplane.TypeURL] != 3 {
		t.Errorf("got %v, want the cluster, both secrets and the new one", got)
	}
}

func namesOf(typeURL string) []string {
	if typeURL == controlplane.TypeURL {
		return []string{"default", "ROOTCA"}
	}
	return nil
}

func TestSecretsAndSnapshotShareIncrementalStream(t *testing.T) {
	source := secrettest.New(leaf("default", "1"), roots("1"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := aggregated(t, source).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for typeURL, names := range map[string][]string{resourcev3.ClusterType: {"*"}, controlplane.TypeURL: {"default", "ROOTCA", "unknown"}} {
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names, Node: &corev3.Node{Id: "test"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, removed := map[string]string{}, []string{}
	for range 3 {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range r.Resources {
			got[resource.Name] = resource.Version
		}
		removed = append(removed, r.RemovedResources...)
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			t.Fatal(err)
		}
		if r.TypeUrl == controlplane.TypeURL && got["default"] == "1" {
			source.Put(leaf("default", "2"))
		}
	}
	if got["default"] != "2" || got["ROOTCA"] != "1" || got["backend"] == "" || len(removed) != 1 {
		t.Errorf("got %v, removed %q", got, removed)
	}
}
