package discovery_test

import (
	"context"
	"log"
	"net"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func Example() {
	var (
		held  secret.Source                        // with the server's own certificate, from [secret.New]
		roots func(trustDomain string) *pki.Bundle // of a federation.Source, say
		types []discovery.Type                     // with their sources
	)
	certificate, err := tlsconfig.Server(tlsconfig.Options{Source: held, Certificate: "default"})
	if err != nil {
		log.Fatal(err)
	}
	server, err := discovery.New(discovery.Config{
		Types:         types,
		Authenticator: authn.Ordered{{Name: "certificate", Authenticator: authn.Certificates{Roots: roots}}},
		TLS:           certificate,
		LocalCluster:  "Kubernetes",
		Clusters:      map[string][]string{"far.example": {"far"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", ":15012")
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(context.Background(), discovery.Listeners{TLS: listener}); err != nil {
		log.Fatal(err)
	}
}
