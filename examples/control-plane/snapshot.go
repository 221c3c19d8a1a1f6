package main

import (
	"context"
	_ "embed"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

//go:embed listener.json
var listenerJSON []byte

//go:embed cluster.json
var clusterJSON []byte

// everyNode serves the same snapshot to all nodes.
type everyNode struct{}

func (everyNode) ID(*corev3.Node) string { return "" }

// snapshot returns a cache with the listener and the cluster in this program's JSON files. Both
// refer to their secrets by name.
func snapshot(ctx context.Context, port uint32) (cachev3.SnapshotCache, error) {
	listener, cluster := &listenerv3.Listener{}, &clusterv3.Cluster{}
	if err := protojson.Unmarshal(listenerJSON, listener); err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(clusterJSON, cluster); err != nil {
		return nil, err
	}
	listener.Address.GetSocketAddress().PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: port}
	content, err := cachev3.NewSnapshot("1", map[resourcev3.Type][]types.Resource{
		resourcev3.ListenerType: {listener}, resourcev3.ClusterType: {cluster},
	})
	if err != nil {
		return nil, err
	}
	snapshots := cachev3.NewSnapshotCache(true, everyNode{}, nil)
	return snapshots, snapshots.SetSnapshot(ctx, everyNode{}.ID(nil), content)
}
