package tlsconfig_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// A server and a client of one trust domain.
func Example() {
	authority := catest.NewCA(catest.Options{}) // in a program, the client of a CA
	web, app := hold(authority, "spiffe://example.org/web"), hold(authority, "spiffe://example.org/app")
	defer web.Close()
	defer app.Close()

	server := must(tlsconfig.Server(tlsconfig.Options{
		Source: web, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org"),
	}))
	client := must(tlsconfig.Client(tlsconfig.Options{
		Source: app, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.SPIFFEID("spiffe://example.org/web"),
	}))

	listener := must(tls.Listen("tcp", "127.0.0.1:0", server))
	defer listener.Close()
	go answer(listener)
	conn := must(tls.Dial("tcp", listener.Addr().String(), client))
	defer conn.Close()
	fmt.Printf("%s\n", must(io.ReadAll(conn)))
	// Output: hello, spiffe://example.org/app
}

// Only peers in the namespace "shop" of the trust domain.
func ExampleAuthorizer() {
	shop := func(p tlsconfig.Peer) error {
		id, err := p.SPIFFEID()
		if err == nil && !strings.HasPrefix(id, "spiffe://example.org/ns/shop/") {
			err = errors.New("only the shop may ask")
		}
		return err
	}
	fmt.Println(tlsconfig.Options{Peer: shop}.Peer != nil)
	// Output: true
}

// hold obtains a certificate for the SPIFFE ID, waits for it, and keeps it fresh.
func hold(authority *catest.CA, spiffeID string) *secret.Manager {
	manager := must(secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: must(pki.NewIdentity(spiffeID, nil, nil)), Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	}))
	for _, name := range []string{"default", "ROOTCA"} {
		must(manager.Get(context.Background(), secret.Caller{}, name))
	}
	return manager
}

// answer sends one client its own ID.
func answer(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	secured := conn.(*tls.Conn)
	if err := secured.Handshake(); err == nil {
		_, _ = fmt.Fprintf(conn, "hello, %s", secured.ConnectionState().PeerCertificates[0].URIs[0])
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
