package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// dialSDS connects to a socket, and again whenever the connection is lost.
func dialSDS(t *testing.T, socket string) secretv3.SecretDiscoveryServiceClient {
	t.Helper()
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return secretv3.NewSecretDiscoveryServiceClient(conn)
}

// sdsStream is one state-of-the-world stream.
type sdsStream struct {
	secretv3.SecretDiscoveryService_StreamSecretsClient
}

func openStream(ctx context.Context, client secretv3.SecretDiscoveryServiceClient) (*sdsStream, error) {
	stream, err := client.StreamSecrets(ctx, grpc.WaitForReady(true))
	return &sdsStream{stream}, err
}

// subscribe asks for names as a client does that has nothing yet.
func (s *sdsStream) subscribe(names ...string) error {
	return s.Send(&discoveryv3.DiscoveryRequest{
		Node: &corev3.Node{Id: "e2e"}, TypeUrl: secretType, ResourceNames: names,
	})
}

// ack accepts a response and lists the names that are wanted from now on.
func (s *sdsStream) ack(response *discoveryv3.DiscoveryResponse, names ...string) error {
	return s.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: secretType, ResourceNames: names,
		VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
	})
}

// secretsOf returns the secrets of a response by name.
func secretsOf(response *discoveryv3.DiscoveryResponse) (map[string]*tlsv3.Secret, error) {
	if response.GetTypeUrl() != secretType {
		return nil, fmt.Errorf("the response is of the type %q", response.GetTypeUrl())
	}
	secrets := map[string]*tlsv3.Secret{}
	for _, resource := range response.GetResources() {
		if resource.GetTypeUrl() != secretType {
			return nil, fmt.Errorf("a resource is of the type %q", resource.GetTypeUrl())
		}
		secret := &tlsv3.Secret{}
		if err := proto.Unmarshal(resource.GetValue(), secret); err != nil {
			return nil, err
		}
		secrets[secret.GetName()] = secret
	}
	return secrets, nil
}
