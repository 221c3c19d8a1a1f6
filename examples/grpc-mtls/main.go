// Command grpc-mtls is a gRPC server and its client, which authenticate each other by SPIFFE ID.
// Their CA is in a folder: replace it with your own ca.Client.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/grpccreds"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "grpc-mtls:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir := flag.String("ca", "ca", "folder of the CA, created if missing")
	flag.Parse()
	authority, err := fileca.Open(ctx, fileca.Settings{Dir: *dir, SelfSigned: true})
	if err != nil {
		return err
	}
	defer authority.Close()
	config := secret.Config{
		Authorities: []secret.Authority{{Name: "file", Client: authority}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"file"}}},
	}
	for _, name := range []string{"web", "app"} {
		id, err := pki.NewIdentity("spiffe://example.org/"+name, nil, nil)
		if err != nil {
			return err
		}
		config.Secrets = append(config.Secrets, secret.Spec{Name: name, Kind: secret.KeyPair, Identity: id, Authorities: []string{"file"}})
	}
	secrets, err := secret.New(config)
	if err != nil {
		return err
	}
	defer secrets.Close()
	for _, spec := range config.Secrets {
		if _, err := secrets.Get(ctx, secret.Caller{}, spec.Name); err != nil { // wait for the first certificate
			return err
		}
	}
	options := tlsconfig.Options{Source: secrets, Certificate: "web", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")}
	creds, err := grpccreds.Server(options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(creds))
	healthv1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()
	options.Certificate, options.Peer = "app", tlsconfig.SPIFFEID("spiffe://example.org/web")
	return call(ctx, listener.Addr().String(), options)
}

// call calls the health service and prints who answered.
func call(ctx context.Context, address string, o tlsconfig.Options) error {
	creds, err := grpccreds.Client(o)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	var server peer.Peer
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&server))
	if err == nil {
		fmt.Println(server.AuthInfo.(credentials.TLSInfo).SPIFFEID, "is", answer.Status)
	}
	return err
}
