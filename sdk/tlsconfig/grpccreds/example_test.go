package grpccreds_test

import (
	"fmt"
	"log"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/grpccreds"
)

func ExampleServer() {
	var source secret.Source = &secret.Manager{} // in a program, secret.New's
	creds, err := grpccreds.Server(tlsconfig.Options{
		Source: source, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org"),
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(creds))
	defer server.Stop()
	fmt.Println(creds.Info().SecurityProtocol)
	// Output: tls
}

func ExampleClient() {
	var source secret.Source = &secret.Manager{} // in a program, secret.New's
	creds, err := grpccreds.Client(tlsconfig.Options{
		Source: source, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.SPIFFEID("spiffe://example.org/web"),
	})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("web.example.org:443", grpc.WithTransportCredentials(creds))
	fmt.Println(conn.Target(), err)
	_ = conn.Close()
	// Output: web.example.org:443 <nil>
}
