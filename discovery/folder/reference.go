package folder

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
)

// ref is a resource that a file refers to. A missing one is only a warning, since it
// may come from elsewhere (Envoy's bootstrap).
type ref = key

// note records the names of other resources in a message.
func (p parser) note(m proto.Message) {
	var r ref
	switch m := m.(type) {
	case *clusterv3.Cluster:
		if m.GetType() == clusterv3.Cluster_EDS {
			r = ref{EndpointURL, endpointsOf(m)}
		}
	case *hcmv3.Rds:
		r = ref{RouteURL, m.GetRouteConfigName()}
	case *routev3.RouteAction:
		r = ref{ClusterURL, m.GetCluster()}
	case *routev3.WeightedCluster_ClusterWeight:
		r = ref{ClusterURL, m.GetName()}
	case *tcpproxyv3.TcpProxy:
		r = ref{ClusterURL, m.GetCluster()}
	case *corev3.GrpcService_EnvoyGrpc:
		r = ref{ClusterURL, m.GetClusterName()}
	}
	if r.name != "" {
		p.refs = append(p.refs, r)
	}
}

// endpointsOf returns the name a cluster requests its endpoints by.
func endpointsOf(c *clusterv3.Cluster) string {
	if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return c.GetName()
}
