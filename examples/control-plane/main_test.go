package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/sdk/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnvoyGetsAllOnOneStreamAndRotates(t *testing.T) {
	envoy := needEnvoy(t)
	for _, api := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(api, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cp") // a socket's path is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			secrets := start(t, filepath.Join(dir, "ads.sock"))
			startEnvoy(t, envoy, dir, api)
			address := listenerOf(t, dir)
			seen := map[string]bool{}
			await(t, "another certificate", func() error { // an expired one, of a machine that stands still, counts no more
				cert, err := shown(t.Context(), address, secrets)
				if err == nil {
					seen[cert.SerialNumber.String()] = true
				}
				if len(seen) < 2 {
					return cmp.Or(err, errors.New("it is still the first"))
				}
				return nil
			})
		})
	}
}

// start runs the control plane until the test ends, and returns a client of it.
func start(t *testing.T, socket string) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, socket, 0, 10*time.Second) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// shown shakes hands with the secrets as they are, and returns what Envoy shows.
func shown(ctx context.Context, address string, secrets discoveryv3.AggregatedDiscoveryServiceClient) (*x509.Certificate, error) {
	config, err := clientConfig(ctx, secrets)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// clientConfig asks as Envoy does for the two secrets, and makes a client of them.
func clientConfig(ctx context.Context, secrets discoveryv3.AggregatedDiscoveryServiceClient) (*tls.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := secrets.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	err = stream.Send(&discoveryv3.DiscoveryRequest{
		Node: &corev3.Node{Id: "test"}, TypeUrl: controlplane.TypeURL, ResourceNames: []string{"default", "ROOTCA"},
	})
	if err != nil {
		return nil, err
	}
	config := &tls.Config{InsecureSkipVerify: true, RootCAs: x509.NewCertPool()} // a SPIFFE ID is no host name: see VerifyConnection
	for config.Certificates == nil || config.VerifyConnection == nil {
		answer, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		for _, resource := range answer.Resources {
			var s tlsv3.Secret
			if err := errors.Join(resource.UnmarshalTo(&s), put(config, &s)); err != nil {
				return nil, err
			}
		}
	}
	return config, nil
}

// put has a client use a secret.
func put(config *tls.Config, s *tlsv3.Secret) error {
	if pair := s.GetTlsCertificate(); pair != nil {
		cert, err := tls.X509KeyPair(pair.GetCertificateChain().GetInlineBytes(), pair.GetPrivateKey().GetInlineBytes())
		config.Certificates = []tls.Certificate{cert}
		return err
	}
	if !config.RootCAs.AppendCertsFromPEM(s.GetValidationContext().GetTrustedCa().GetInlineBytes()) {
		return fmt.Errorf("%s has no roots", s.GetName())
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: config.RootCAs})
		return err
	}
	return nil
}
