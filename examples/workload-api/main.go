// Command workload-api serves the SPIFFE Workload API to the programs of this user. Its CA is in
// a folder: replace it with your own ca.Client. It prints the environment variable by which
// a SPIFFE library finds it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "workload-api:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("ca", "ca", "folder of the CA, created if missing")
	socket := flag.String("socket", "spiffe.sock", "Unix socket to serve on")
	name := flag.String("id", "spiffe://example.org/web", "SPIFFE ID of the programs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	authority, err := fileca.Open(ctx, fileca.Settings{Dir: *dir, SelfSigned: true})
	if err != nil {
		return err
	}
	defer authority.Close()
	secrets, err := secret.Obtain(ctx, authority, *name)
	if err != nil {
		return err
	}
	defer secrets.Close()

	server, err := workloadapi.Listen(workloadapi.Config{Path: *socket}, secrets)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(*socket)
	if err != nil {
		return err
	}
	fmt.Println("SPIFFE_ENDPOINT_SOCKET=unix://" + path)
	defer context.AfterFunc(ctx, func() { end(server) })()
	return server.Serve()
}

// end gives the programs' streams a second to end.
func end(server *workloadapi.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = server.Close(ctx)
}
