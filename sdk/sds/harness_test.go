package sds_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// These name the socket that a child of the test asks as another user, or serves
// with few descriptors.
const (
	asChild  = "SDS_TEST_SOCKET"
	asServer = "SDS_TEST_SERVE"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(asChild); socket != "" {
		fmt.Print(askHealth(socket))
		return
	}
	if socket := os.Getenv(asServer); socket != "" {
		fmt.Println(serveWithFewDescriptors(socket))
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 2 * time.Minute

func keyPair(version string) *secret.Item {
	return &secret.Item{Name: "default", Kind: secret.KeyPair, Version: version, Chain: []byte("chain " + version), Key: []byte("key " + version)}
}

func bundle(version string) *secret.Item {
	return &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: version, Roots: []byte("roots " + version)}
}

// start serves source on a new socket until the test ends.
func start(t *testing.T, source secret.Source, cfg sds.Config) string {
	t.Helper()
	_, path := startServer(t, source, cfg)
	return path
}

func startServer(t *testing.T, source secret.Source, cfg sds.Config) (server *sds.Server, path string) {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(proctest.Folder(t), "socket")
	}
	server, err := sds.Listen(cfg, source)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(server.Close(ctx), <-served, server.Close(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := os.Lstat(cfg.Path); err == nil {
			t.Error("the socket is still there")
		}
	})
	return server, cfg.Path
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client is one stream of a client that acknowledges all it gets.
type client struct {
	secretv3.SecretDiscoveryService_StreamSecretsClient
	t     *testing.T
	names []string
}

func open(t *testing.T, conn *grpc.ClientConn) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx)
	must(t, err)
	return &client{SecretDiscoveryService_StreamSecretsClient: stream, t: t}
}

func (c *client) ask(names ...string) {
	c.t.Helper()
	c.names = append(c.names, names...)
	if err := c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: names, Node: &corev3.Node{Id: "test"}}); err != nil {
		c.t.Fatal(err)
	}
}

// get returns the next answer's secrets by name, and acknowledges it.
func (c *client) get() map[string]*tlsv3.Secret {
	c.t.Helper()
	answer, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]*tlsv3.Secret{}
	for _, resource := range answer.Resources {
		var s tlsv3.Secret
		if err := resource.UnmarshalTo(&s); err != nil {
			c.t.Fatal(err)
		}
		got[s.Name] = &s
	}
	err = c.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: c.names, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

var must = fatal.If
