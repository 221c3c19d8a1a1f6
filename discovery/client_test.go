package discovery_test

import (
	"context"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// client is one ADS stream.
type client struct {
	t    testing.TB
	ads  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *corev3.Node // of the next request
	hang context.CancelFunc
	last *discoveryv3.DiscoveryResponse
}

// open opens a stream with metadata in pairs.
func open(t testing.TB, conn *grpc.ClientConn, pairs ...string) *client {
	t.Helper()
	ctx, hang := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), pairs...), 1000*time.Hour)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		hang()
		t.Fatal(err)
	}
	return &client{t: t, ads: ads, node: &corev3.Node{Id: "node"}, hang: hang}
}

func nodeWith(fields map[string]any) *corev3.Node {
	data, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return &corev3.Node{Id: "node", Metadata: data}
}

func (c *client) ask(typ string, names ...string) {
	_ = c.ads.Send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: typ, ResourceNames: names}) // the answer shows the result
	c.node = nil
}

func (c *client) answer(bad *rpcstatus.Status, names ...string) {
	version := c.last.GetVersionInfo()
	if bad != nil {
		version = ""
	}
	_ = c.ads.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: c.last.GetTypeUrl(), ResourceNames: names, ResponseNonce: c.last.GetNonce(), VersionInfo: version, ErrorDetail: bad,
	})
}

// gets demands a response with that version.
func (c *client) gets(version string) {
	c.t.Helper()
	got, err := c.ads.Recv()
	if err != nil || got.GetVersionInfo() != version {
		c.t.Fatalf("got version %q, %v, want %q", got.GetVersionInfo(), err, version)
	}
	c.last = got
}

// ends demands that the stream ends with that status, and returns its text.
func (c *client) ends(want codes.Code) string {
	c.t.Helper()
	defer c.hang()
	got, err := c.ads.Recv()
	if status.Code(err) != want {
		c.t.Fatalf("got %v, %v, want %s", got, err, want)
	}
	return status.Convert(err).Message()
}
