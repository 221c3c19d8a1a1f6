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

// A TLS server for everyone, in one call.
func ExampleObtain() {
	authority := catest.NewCA(catest.Options{})
	server, secrets, err := tlsconfig.Obtain(context.Background(), authority, "localhost")
	if err != nil {
		panic(err)
	}
	defer secrets.Close()

	listener := must(tls.Listen("tcp", "127.0.0.1:0", server))
	defer listener.Close()
	answered := make(chan struct{})
	go func() { defer close(answered); greet(listener) }()
	conn := must(tls.Dial("tcp", listener.Addr().String(), &tls.Config{ServerName: "localhost", RootCAs: authority.Bundle().Pool()}))
	defer conn.Close()
	fmt.Printf("%s\n", must(io.ReadAll(conn)))
	<-answered
	// Output: hello
}

// A TLS server whose clients choose the certificate by the name they ask for. The source may also be
// one of certificates on demand, such as an ondemand.Set.
func ExampleByServerName() {
	authority := catest.NewCA(catest.Options{})
	var source secret.Map
	for _, name := range []string{"a.shop.example.org", "b.shop.example.org"} {
		held := must(secret.Obtain(context.Background(), authority, name))
		defer held.Close()
		source.Set(name, must(held.Peek(secret.Caller{}, "default")))
	}

	server := must(tlsconfig.ByServerName(tlsconfig.Options{Source: &source}))
	listener := must(tls.Listen("tcp", "127.0.0.1:0", server))
	defer listener.Close()

	for _, name := range []string{"a.shop.example.org", "b.shop.example.org", "c.shop.example.org"} {
		answered := make(chan struct{})
		go func() { defer close(answered); greet(listener) }()
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{ServerName: name, RootCAs: authority.Bundle().Pool()})
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(conn.ConnectionState().PeerCertificates[0].DNSNames)
			conn.Close()
		}
		<-answered
	}
	// Output:
	// [a.shop.example.org]
	// [b.shop.example.org]
	// remote error: tls: unrecognized name
}

// greet answers one client.
func greet(listener net.Listener) {
	conn := must(listener.Accept())
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello")
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
	ctx := context.Background()
	manager := must(secret.Obtain(ctx, authority, spiffeID))
	if err := secret.Ready(ctx, manager, "ROOTCA"); err != nil {
		panic(err)
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
