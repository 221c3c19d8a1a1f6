package authn_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/token"
)

// A server that identifies its callers by certificate, by the tokens of an issuer, or by
// asking the API server of their cluster.
func ExampleOrdered() {
	roots := func(trustDomain string) *pki.Bundle { return nil } // or the method Bundle of a federation.Source
	issuer, err := jwt.New(jwt.Config{
		Issuer: "https://issuer.example", Audiences: []string{"istio-ca"}, TrustDomain: "example.org",
	})
	if err != nil {
		panic(err)
	}
	east, err := tokenreview.New(tokenreview.Config{
		URL: "https://10.0.0.1:6443", RootFile: "/etc/east/ca.crt", Audiences: []string{"istio-ca"}, Cluster: "east",
		Token: token.File{Path: "/etc/east/token"},
	})
	if err != nil {
		panic(err)
	}
	clusters := func(name string) authn.Authenticator {
		if name == "east" {
			return east
		}
		return nil
	}
	callers := authn.Ordered{
		{Name: "certificate", Authenticator: authn.Certificates{Roots: roots}},
		{Name: "jwt", Authenticator: issuer},
		{Name: "token_review", Authenticator: authn.Clusters(clusters)},
	}

	var connection tls.ConnectionState // of a listener with tls.RequestClientCert
	_, err = callers.Authenticate(context.Background(), authn.Credential{Token: "opaque", Chain: connection.PeerCertificates, Cluster: "west"})
	os.Stdout.WriteString(err.Error() + "\n") // all that the caller gets
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Warn("a caller is sent away", "why", err)

	// Output:
	// the caller could not be authenticated
	// level=WARN msg="a caller is sent away" why.certificate="no credential of this kind" why.jwt="no credential of this kind: the token is not a JWT of three parts" why.token_review="credential rejected: unknown cluster \"west\""
}
