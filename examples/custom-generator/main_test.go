package main

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/catest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "web"}`

func TestCustomTypeIsServedBesideFolders(t *testing.T) {
	dir, root := t.TempDir(), catest.NewCA(catest.Options{})
	if err := os.WriteFile(filepath.Join(dir, "web.json"), []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFeatures()
	obey(strings.NewReader("shop checkout.percent 25\nnonsense\nshop checkout.percent many\nbank checkout.percent 5"), f)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, listener, leaf(t, root, "spiffe://example.org/ns/system/sa/discovery"), root.Bundle(), dir, f)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	shop := dial(t, listener.Addr().String(), root, "spiffe://example.org/ns/shop/sa/web")
	bank := dial(t, listener.Addr().String(), root, "spiffe://example.org/ns/bank/sa/web")
	ask(t, shop, folder.ClusterURL)
	if got := next(t, shop); got.TypeUrl != folder.ClusterURL || len(got.Resources) != 1 {
		t.Errorf("of the folder it gets %v", got)
	}
	ask(t, shop, runtimeURL, layer)
	ask(t, bank, runtimeURL, layer)
	if s, b := percent(t, shop), percent(t, bank); s != 25 || b != 5 {
		t.Errorf("the shop has %v and the bank %v", s, b)
	}
	f.Set("shop", "checkout.percent", 50)
	if s := percent(t, shop); s != 50 {
		t.Errorf("the shop has %v", s)
	}
}

type ads = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

func dial(t *testing.T, address string, root *catest.CA, id string) ads {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: root.Bundle().Pool(), ServerName: "discovery", Certificates: []tls.Certificate{leaf(t, root, id)}, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(func() { stop(); conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// ask claims another namespace in the node, which changes nothing.
func ask(t *testing.T, stream ads, url string, names ...string) {
	t.Helper()
	err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: names, Node: &corev3.Node{Id: "sidecar~bank"}})
	if err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, stream ads) *discoveryv3.DiscoveryResponse {
	t.Helper()
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func percent(t *testing.T, stream ads) float64 {
	t.Helper()
	var runtime runtimev3.Runtime
	if err := next(t, stream).Resources[0].UnmarshalTo(&runtime); err != nil {
		t.Fatal(err)
	}
	return runtime.Layer.Fields["checkout.percent"].GetNumberValue()
}

// leaf returns a certificate with its key for a SPIFFE ID and the name of the service.
func leaf(t *testing.T, authority *catest.CA, id string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(authority.Pair(time.Hour, id, "discovery"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
