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
	"github.com/countersign-dev/countersign/sdk/ca"
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
	authority, err := fileca.Open(ctx, fileca.Settings{Dir: *dir, SelfSigned: true, MaxTTL: *ttl})
	if err != nil {
		return err
	}
	defer authority.Close()
	if err := serve(ctx, authority, *listen); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serve is all that an HTTPS server with an authority needs.
func serve(ctx context.Context, authority ca.Client, address string) error {
	cfg, secrets, err := tlsconfig.Obtain(ctx, authority, "localhost")
	if err != nil {
		return err
	}
	defer secrets.Close()
	server := &http.Server{Addr: address, TLSConfig: cfg, Handler: http.HandlerFunc(hello), BaseContext: printAddress, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.ListenAndServeTLS("", "")
}

func printAddress(l net.Listener) context.Context {
	fmt.Println(l.Addr())
	return context.Background()
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
