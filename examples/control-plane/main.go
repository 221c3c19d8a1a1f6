// Command control-plane is a control plane based on go-control-plane. It serves a listener and a
// cluster from a snapshot, and their secrets from Countersign, on one aggregated stream.
// envoy.yaml is the bootstrap of an Envoy for it.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os/signal"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/controlplane"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func run(ctx context.Context, socket string, port uint32, ttl time.Duration) error {
	id, err := pki.NewIdentity("spiffe://example.org/envoy", nil, nil)
	if err != nil {
		return err
	}
	secrets, err := secret.New(secret.Config{
		// A CA in memory: replace it with your own ca.Client, or one of pluginhost.Open.
		Authorities: []secret.Authority{{Name: "memory", Client: catest.NewCA(catest.Options{})}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: ttl, Authorities: []string{"memory"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"memory"}},
		},
	})
	if err != nil {
		return err
	}
	defer secrets.Close()
	// Only this user may open the socket, so every node is the same caller.
	caller := func(*corev3.Node) (secret.Caller, error) { return secret.Caller{ID: "envoy"}, nil }
	held, err := controlplane.New(controlplane.Config{Secrets: secrets, Caller: caller})
	if err != nil {
		return err
	}
	snapshots, err := snapshot(ctx, port)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, mux(snapshots, held), nil))
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}

func main() {
	socket := flag.String("socket", "ads.sock", "Unix socket for Envoy, in a folder that only you can access")
	port := flag.Uint("port", 10000, "port that Envoy listens on")
	ttl := flag.Duration("ttl", time.Hour, "lifetime of a certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	syscall.Umask(0o077)
	err := run(ctx, *socket, uint32(*port), *ttl)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
