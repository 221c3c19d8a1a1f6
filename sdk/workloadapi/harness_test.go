package workloadapi_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// keyPair is a new certificate of these names.
func keyPair(t *testing.T, authority *catest.CA, name, spiffeID string, dnsNames ...string) *secret.Item {
	t.Helper()
	chain, key := authority.Pair(0, spiffeID, dnsNames...)
	return &secret.Item{Name: name, Kind: secret.KeyPair, Version: string(chain), Chain: chain, Key: key}
}

func bundle(authority *catest.CA, name string) *secret.Item {
	roots := authority.Bundle().PEM()
	return &secret.Item{Name: name, Kind: secret.TrustBundle, Version: string(roots), Roots: roots}
}

// start serves the source on a new socket until the test ends.
func start(t *testing.T, source secret.Source, cfg workloadapi.Config) (*workloadapi.Server, *client) {
	t.Helper()
	dir := proctest.Folder(t)
	cfg.Path = filepath.Join(dir, "socket")
	server, err := workloadapi.Listen(cfg, source)
	if err != nil {
		t.Fatal(err)
	}
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
	return server, dial(t, cfg.Path)
}

// client calls the service by the names of the standard.
type client struct {
	t      *testing.T
	conn   *grpc.ClientConn
	header []string
}

func dial(t *testing.T, socket string) *client {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, []string{"workload.spiffe.io", "true"}}
}

// stream is an open call, whose answers are of one type.
type stream[M any] struct {
	grpc.ClientStream
	t *testing.T
}

func open[M any](c *client, method string, request any) *stream[M] {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(), c.header...), patience)
	c.t.Cleanup(cancel)
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/SpiffeWorkloadAPI/"+method)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(request), s.CloseSend()); err != nil {
		c.t.Fatal(err)
	}
	return &stream[M]{s, c.t}
}

func (c *client) svids() *stream[workloadv1.X509SVIDResponse] {
	return open[workloadv1.X509SVIDResponse](c, "FetchX509SVID", &workloadv1.X509SVIDRequest{})
}

func (c *client) bundles() *stream[workloadv1.X509BundlesResponse] {
	return open[workloadv1.X509BundlesResponse](c, "FetchX509Bundles", &workloadv1.X509BundlesRequest{})
}

// get returns the next answer.
func (s *stream[M]) get() *M {
	s.t.Helper()
	answer := new(M)
	if err := s.RecvMsg(answer); err != nil {
		s.t.Fatal(err)
	}
	return answer
}

// end returns what the stream ends with, and fails if an answer comes first.
func (s *stream[M]) end() error {
	s.t.Helper()
	answer := new(M)
	err := s.RecvMsg(answer)
	if err == nil {
		s.t.Fatal("an answer came")
	}
	return err
}

// serveOn puts the service on a server of one's own.
func serveOn(t *testing.T, service *workloadapi.Service) *client {
	t.Helper()
	dir := proctest.Folder(t)
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return dial(t, listener.Addr().String())
}
