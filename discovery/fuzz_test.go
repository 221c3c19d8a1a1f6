package discovery

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Whatever a node claims, its caller is who it was, in a cluster that it may be in.
func FuzzNodeMetadata(f *testing.F) {
	for _, fields := range []map[string]any{
		{}, {"CLUSTER_ID": "far", "NAMESPACE": "bank", "LABELS": map[string]any{"app": "web", "n": 1, "null": nil}},
		{"CLUSTER_ID": []any{"far"}, "LABELS": "none"}, {"CLUSTER_ID": "elsewhere"},
	} {
		data, err := structpb.NewStruct(fields)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := proto.Marshal(&corev3.Node{Id: "node", Metadata: data})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	server, err := New(Config{
		Authenticator: authn.Ordered{}, Types: []Type{{URL: secretURL, Source: nothing{}}},
		Clusters: map[string][]string{"example.org": {"local", "far"}}, LocalCluster: "local", Limits: Limits{Metadata: 1000},
	})
	if err != nil {
		f.Fatal(err)
	}
	id, err := authn.OfSPIFFEID("spiffe://example.org/ns/shop/sa/web")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var node corev3.Node
		if proto.Unmarshal(raw, &node) != nil {
			return
		}
		of := &session{identity: id}
		before := &Caller{Identity: id, Cluster: "local", session: of}
		of.caller = before
		if err := server.sessions.enter(of); err != nil {
			t.Fatal(err)
		}
		defer server.sessions.leave(of)
		after, err := server.meet(t.Context(), before, &node)
		switch {
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Fatal(err)
		case err != nil:
			return
		case after.Identity != id || before.Node.ID != "" || !slices.Contains([]string{"", "local", "far"}, after.Cluster):
			t.Fatalf("the caller is %+v", after)
		case after.Node.Metadata == nil || proto.Size(after.Node.Metadata) > 1000:
			t.Fatalf("the node is %+v", after.Node)
		}
	})
}

// nothing is a source that has nothing.
type nothing struct{}

func (nothing) Peek(*Caller, string) (*xds.Resource, error) { return nil, xds.ErrUnknown }

func (nothing) Watch(*Caller, string, func(string)) (func(), error) { return func() {}, nil }
