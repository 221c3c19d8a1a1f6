package discovery

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	// Keys that Istio's proxies set in the node's metadata.
	clusterKey = "CLUSTER_ID"
	labelsKey  = "LABELS"
)

// meet returns the caller as amended by the first request. That changes neither the
// identity nor a cluster claimed or determined before.
func (s *Server) meet(ctx context.Context, caller *Caller, from *corev3.Node) (*Caller, error) {
	node, err := nodeOf(from, s.cfg.Limits.Metadata)
	if err != nil {
		return nil, err
	}
	known := *caller
	known.Node = node
	if known.session.claim == "" {
		known.Cluster = s.clusterOf(known.session, node.Metadata.GetFields()[clusterKey].GetStringValue())
	}
	if err := s.sessions.settle(known.session, known.Cluster); err != nil {
		return nil, s.refuse(ctx, overLimit, err, status.Convert(err).Message())
	}
	known.session.met(&known)
	s.sessions.speaks(known.session)
	return &known, nil
}

// clusterOf returns a session's cluster and logs a claim that is not allowed.
func (s *Server) clusterOf(of *session, claim string) string {
	cluster := s.cfg.clusterOf(of.identity, claim)
	if cluster == "" && claim != "" {
		s.say("cluster claim not allowed for the caller, serving it no cluster's resources",
			"identity", shown(of.identity.String()), "claim", shown(claim), "peer", of.peer)
	}
	return cluster
}

// nodeOf parses a client's claims about itself, with at most limit bytes of metadata.
func nodeOf(from *corev3.Node, limit int) (Node, error) {
	node := Node{ID: from.GetId(), Metadata: from.GetMetadata(), Labels: map[string]string{}}
	if node.Metadata == nil {
		node.Metadata = &structpb.Struct{}
	}
	if size := proto.Size(node.Metadata); size > limit {
		return Node{}, status.Errorf(codes.InvalidArgument, "node.metadata has %d bytes, at most %d are allowed", size, limit)
	}
	for name, value := range node.Metadata.GetFields()[labelsKey].GetStructValue().GetFields() {
		if text, ok := value.GetKind().(*structpb.Value_StringValue); ok {
			node.Labels[name] = text.StringValue
		}
	}
	return node, nil
}
