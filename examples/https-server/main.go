// Command https-server serves HTTPS with a certificate that it renews while it runs. Its CA is in
// a folder: replace it with your own ca.Client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "https-server:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:8443", "address to listen on")
	dir := flag.String("ca", "ca", "folder of the CA, created if missing")
	ttl := flag.Duration("ttl", time.Hour, "lifetime of a certificate, which is renewed halfway")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	authority, err := fileca.Open(ctx, fileca.Settings{Dir: *dir, SelfSigned: true})
	if err != nil {
		return err
	}
	defer authority.Close()
	id, err := pki.NewIdentity("", []string{"localhost"}, nil)
	if err != nil {
		return err
	}
	secrets, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "file", Client: authority}},
		Secrets:     []secret.Spec{{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: *ttl, Authorities: []string{"file"}}},
	})
	if err != nil {
		return err
	}
	defer secrets.Close()
	if _, err := secrets.Get(ctx, secret.Caller{}, "default"); err != nil { // wait for the first certificate
		return err
	}

	cfg, err := tlsconfig.Server(tlsconfig.Options{Source: secrets, Certificate: "default"})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{TLSConfig: cfg, Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
