// Command custom-generator serves a resource type of its own beside those in a folder: Envoy's
// runtime (RTDS), with separate values for each namespace. A line on standard input sets a
// value: "shop checkout.percent 25".
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// run serves Envoys whose certificates chain to roots, until ctx ends.
func run(ctx context.Context, listener net.Listener, own tls.Certificate, roots *pki.Bundle, path string, f *features) error {
	defer f.changed.Close()
	files, err := folder.New(folder.Config{Path: path})
	if err != nil {
		return err
	}
	server, err := discovery.New(discovery.Config{
		Types:         append(files.Types(), f.Type()),
		Authenticator: authn.Certificates{Roots: func(string) *pki.Bundle { return roots }},
		TLS:           &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return files.Run(ctx) })
	group.Go(func() error { return server.Run(ctx, discovery.Listeners{TLS: listener}) })
	return group.Wait()
}

func start(ctx context.Context, address, path, cert, key, rootFile string) error {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(rootFile)
	if err != nil {
		return err
	}
	roots, err := pki.ParseBundle(text)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	f := newFeatures()
	go obey(os.Stdin, f)
	return run(ctx, listener, own, roots, path, f)
}

func main() {
	address := flag.String("listen", "localhost:15012", "address to listen on")
	path := flag.String("folder", "resources", "folder of Envoy's resources")
	cert, key := flag.String("cert", "tls.crt", "PEM file with the server's certificate"), flag.String("key", "tls.key", "PEM file with its key")
	roots := flag.String("roots", "ca.crt", "PEM file with the roots that verify Envoys")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, *address, *path, *cert, *key, *roots)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
