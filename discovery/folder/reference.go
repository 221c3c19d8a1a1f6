package folder

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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
		p.uses[r] = struct{}{}
	}
	p.noteUses(m)
}

// noteUses records every name that may be one of a resource that this message uses, so that
// nothing which an extension uses is called unused.
func (p parser) noteUses(m proto.Message) {
	if _, itself := m.(*endpointv3.ClusterLoadAssignment); itself {
		return
	}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case name == "cluster_header", strings.HasPrefix(name, "cluster_specifier_plugin"):
			p.open = true
		case strings.Contains(name, "cluster"):
			p.use(ClusterURL, field, value)
		case strings.Contains(name, "route_config"):
			p.use(RouteURL, field, value)
		}
		return true
	})
}

func (p parser) use(url string, field protoreflect.FieldDescriptor, value protoreflect.Value) {
	switch {
	case field.Kind() != protoreflect.StringKind || field.IsMap():
	case field.IsList():
		for i := range value.List().Len() {
			p.uses[ref{url, value.List().Get(i).String()}] = struct{}{}
		}
	default:
		p.uses[ref{url, value.String()}] = struct{}{}
	}
}

// endpointsOf returns the name a cluster requests its endpoints by.
func endpointsOf(c *clusterv3.Cluster) string {
	if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return c.GetName()
}
