package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/certprovider"
)

//go:embed mesh/grpctls.yaml
var grpcTLSFile string

// proxyless is a source of one identity, registered with gRPC's certificate provider.
type proxyless struct {
	secret.Map
	t    *testing.T
	name string // also the last part of its SPIFFE ID
}

func newProxyless(t *testing.T, name string) *proxyless {
	t.Helper()
	w := &proxyless{t: t, name: name}
	stop, err := certprovider.Serve(t.Name()+name, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return w
}

// rotate gives the workload a new certificate of the CA.
func (w *proxyless) rotate(from *catest.CA) {
	w.t.Helper()
	chain, key := from.Pair(time.Hour, "spiffe://e2e.example/"+w.name)
	item, err := secret.NewKeyPair("default", "e2e", chain, key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Set("default", item)
}

// trust replaces the roots.
func (w *proxyless) trust(cas ...*catest.CA) {
	bundle := pki.NewBundle()
	for _, one := range cas {
		bundle = bundle.Union(one.Bundle())
	}
	w.Set("ROOTCA", secret.NewTrustBundle("ROOTCA", "e2e", bundle))
}

// bootstrap returns a bootstrap in which the provider "own" has the workload's source.
func (d *standalone) bootstrap(t *testing.T, w *proxyless) []byte {
	t.Helper()
	_, port, err := net.SplitHostPort(d.address)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{
		"node": map[string]any{"id": "grpc-go-" + w.name},
		"xds_servers": []map[string]any{{
			"server_uri":      "dns:///localhost:" + port,
			"server_features": []string{"xds_v3"},
			"channel_creds": []map[string]any{{"type": "tls", "config": map[string]any{
				"ca_certificate_file": filepath.Join(d.keys, "roots.pem"),
				"certificate_file":    filepath.Join(d.keys, "chain.pem"),
				"private_key_file":    filepath.Join(d.keys, "key.pem"),
			}}},
		}},
		"server_listener_resource_name_template": "server/%s",
		"certificate_providers": map[string]any{
			"own": map[string]any{"plugin_name": certprovider.Name, "config": map[string]any{"source": t.Name() + w.name}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// serveXDS starts a gRPC server whose TLS the discovery service decides.
func (d *standalone) serveXDS(t *testing.T, w *proxyless, listener net.Listener) {
	t.Helper()
	own, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := xds.NewGRPCServer(grpc.Creds(own), xds.BootstrapContentsForTesting(d.bootstrap(t, w)))
	if err != nil {
		t.Fatal(err)
	}
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
}

// callOnce makes a call on a new connection and returns the server's certificate.
func (d *standalone) callOnce(t *testing.T, bootstrap []byte) (serial string, err error) {
	t.Helper()
	own, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///greeter.e2e", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(own))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var at peer.Peer
	if _, err = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{}, grpc.Peer(&at)); err != nil {
		return "", err
	}
	info, ok := at.AuthInfo.(credentials.TLSInfo)
	if !ok {
		t.Fatalf("the connection has %T, not TLS", at.AuthInfo)
	}
	return info.State.PeerCertificates[0].SerialNumber.Text(16), nil
}

// A client and a server without a proxy talk mutual TLS that the discovery service asks for, over
// rotations of both certificates and a change of the root. No call fails.
func TestGRPCWithoutProxyTalksMutualTLS(t *testing.T) {
	t.Parallel()
	d := startStandalone(t)
	old, next := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	client, server := newProxyless(t, "client"), newProxyless(t, "server")
	for _, w := range []*proxyless{client, server} {
		w.trust(old)
		w.rotate(old)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	parts := strings.Split(grpcFile, "---\n")
	d.write(t, "greeter.yaml", strings.Join([]string{
		parts[0], parts[1], strings.ReplaceAll(grpcTLSFile, "PORT", strconv.Itoa(port)), endpointsFile("greeter", port),
	}, "---\n"))
	d.serveXDS(t, server, listener)
	bootstrap := d.bootstrap(t, client)
	seen := map[string]bool{}
	call := func(step string) {
		t.Helper()
		for range 5 {
			serial, err := d.callOnce(t, bootstrap)
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			seen[serial] = true
		}
	}
	poll(t, "the service to have read the files", func() bool {
		_, err := d.callOnce(t, bootstrap)
		return err == nil
	})
	call("at the start")
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"the client has rotated", func() { client.rotate(old) }},
		{"the server has rotated", func() { server.rotate(old) }},
		{"both trust the next root", func() { client.trust(old, next); server.trust(old, next) }},
		{"the server has a certificate of the next root", func() { server.rotate(next) }},
		{"the client has one, too", func() { client.rotate(next) }},
		{"the old root is gone", func() { client.trust(next); server.trust(next) }},
	} {
		step.do()
		call(step.name)
	}
	if len(seen) != 3 {
		t.Errorf("the server showed %d certificates, want 3", len(seen))
	}
	// What the old root signed is refused, by the server and by the client.
	client.rotate(old)
	if _, err := d.callOnce(t, bootstrap); err == nil {
		t.Error("the server takes a client of the old root")
	}
	client.rotate(next)
	server.rotate(old)
	if _, err := d.callOnce(t, bootstrap); err == nil {
		t.Error("the client takes a server of the old root")
	}
}
