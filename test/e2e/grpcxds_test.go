package e2e

import (
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	service "github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
)

//go:embed mesh/grpc.yaml
var grpcFile string

// greeter is a gRPC server; whom a call has reached is told by its port.
func greeter(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return listener.Addr().(*net.TCPAddr).Port
}

// dialXDS dials a name that gRPC's own xDS client looks up at the service, over mutual TLS.
func (d *standalone) dialXDS(t *testing.T, name string) healthgrpc.HealthClient {
	t.Helper()
	_, port, err := net.SplitHostPort(d.address)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := json.Marshal(map[string]any{
		"node": map[string]any{"id": "grpc-go"},
		"xds_servers": []map[string]any{{
			"server_uri":      "dns:///localhost:" + port,
			"server_features": []string{"xds_v3"},
			"channel_creds": []map[string]any{{"type": "tls", "config": map[string]any{
				"ca_certificate_file": filepath.Join(d.keys, "roots.pem"),
				"certificate_file":    filepath.Join(d.keys, "chain.pem"),
				"private_key_file":    filepath.Join(d.keys, "key.pem"),
			}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthgrpc.NewHealthClient(conn)
}

// ownMoment is what gRPC's client says between its new routes and its new picker, which it
// takes over in that order, and whatever the service does (clientconn.go).
const ownMoment = "unknown cluster selected for RPC"

// reaches makes calls until one reaches the port; each must go well.
func reaches(t *testing.T, client healthgrpc.HealthClient, port int) {
	t.Helper()
	poll(t, "a call to reach the server", func() bool {
		var at peer.Peer
		_, err := client.Check(withDeadline(t), &healthgrpc.HealthCheckRequest{}, grpc.WaitForReady(true), grpc.Peer(&at))
		if err != nil && !strings.Contains(err.Error(), ownMoment) {
			t.Fatal(err)
		}
		return err == nil && at.Addr.(*net.TCPAddr).Port == port
	})
}

func TestGRPCXDSClientGetsListenerRouteClusterAndEndpoints(t *testing.T) {
	t.Parallel()
	d := startStandalone(t)
	first, second, third := greeter(t), greeter(t), greeter(t)
	d.write(t, "greeter.yaml", grpcFile)
	d.write(t, "endpoints.yaml", endpointsFile("greeter", first))
	client := d.dialXDS(t, "greeter.e2e")
	reaches(t, client, first)
	d.write(t, "endpoints.yaml", endpointsFile("greeter", second))
	reaches(t, client, second)
	d.write(t, "endpoints.yaml", strings.Join([]string{
		endpointsFile("greeter", second), endpointsFile("other", third), strings.ReplaceAll(strings.Split(grpcFile, "---\n")[2], "greeter", "other"),
	}, "---\n"))
	d.write(t, "greeter.yaml", strings.Replace(grpcFile, "cluster: greeter", "cluster: other", 1))
	reaches(t, client, third)
	for _, url := range []string{folder.ListenerURL, folder.RouteURL, folder.ClusterURL, folder.EndpointURL} {
		var of service.TypeStatus
		poll(t, "all of "+url+" to be accepted", func() bool { // gRPC gives up the former cluster after the call
			of = d.typeStatus(t, url)
			return of.Acked != "" && of.Acked == of.Sent || of.Refused != nil
		})
		if of.Refused != nil {
			t.Errorf("%s: %+v, refused %+v", url, of, of.Refused)
		}
	}
}

// dialTLS dials the service with the client's certificate.
func (d *standalone) dialTLS(t *testing.T) *grpc.ClientConn {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.keys, "chain.pem"), filepath.Join(d.keys, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(d.root.Cert)
	conn, err := grpc.NewClient("passthrough:///"+d.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		ServerName: "localhost", RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestClientGetsNamesOfFolder(t *testing.T) {
	t.Parallel()
	d := startStandalone(t)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.dialTLS(t)).StreamAggregatedResources(withDeadline(t))
	if err != nil {
		t.Fatal(err)
	}
	// As Istio's agents ask: without a name.
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "e2e"}, TypeUrl: folder.NameTableURL}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0.0.9", "10.0.0.10"} {
		d.write(t, "names.yaml", "hosts: {db.example.org: {ips: ["+want+"], registry: External}}\n")
		awaitHost(t, stream, "db.example.org", want)
	}
}

// awaitHost takes name tables until a host has the address.
func awaitHost(t *testing.T, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, host, want string) {
	t.Helper()
	for {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var table ndsv1.NameTable
		if len(answer.Resources) != 1 || answer.Resources[0].TypeUrl != folder.NameTableURL {
			t.Fatalf("%v is no name table", answer.Resources)
		}
		if err := proto.Unmarshal(answer.Resources[0].Value, &table); err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: folder.NameTableURL, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce}); err != nil {
			t.Fatal(err)
		}
		if ips := table.Table[host].GetIps(); len(ips) == 1 && ips[0] == want {
			return
		}
	}
}
