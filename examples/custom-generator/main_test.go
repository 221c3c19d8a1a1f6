package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
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
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "web"}`

func TestCustomTypeIsServedBesideFolders(t *testing.T) {
	dir, root := t.TempDir(), newRoot(t)
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
		ended <- run(ctx, listener, root.leaf(t, "spiffe://example.org/ns/system/sa/discovery"), pki.NewBundle(root.Leaf), dir, f)
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

func dial(t *testing.T, address string, root *root, id string) ads {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(root.Leaf)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, ServerName: "discovery", Certificates: []tls.Certificate{root.leaf(t, id)}, MinVersion: tls.VersionTLS12,
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

// root is a certificate authority.
type root struct{ tls.Certificate }

func newRoot(t *testing.T) *root {
	return &root{issue(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})}
}

func (r *root) leaf(t *testing.T, id string) tls.Certificate {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return issue(t, r, &x509.Certificate{
		URIs: []*url.URL{uri}, DNSNames: []string{"discovery"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// issue makes a certificate that r has signed, or which has signed itself.
func issue(t *testing.T, r *root, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, any(key)
	if r != nil {
		parent, signer = r.Leaf, r.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
