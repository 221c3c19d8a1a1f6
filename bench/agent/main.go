// Command agent is an agent for measuring: the same one with its provider in the
// process or as a verified process of its own.
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

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "where to serve")
	dir := flag.String("ca", "", "the CA's folder")
	binary := flag.String("provider", "", "the file provider's binary; empty: in this process")
	pin := flag.String("sha256", "", "the binary's pin")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	authority, closeIt, err := open(ctx, *dir, *binary, *pin)
	if err != nil {
		return err
	}
	defer closeIt()
	id, err := pki.NewIdentity("spiffe://example.org/ns/default/sa/web", nil, nil)
	if err != nil {
		return err
	}
	return agent.Run(ctx, agent.Config{
		Authorities: []secret.Authority{{Name: "file", Client: authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour, Authorities: []string{"file"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"file"}},
		},
		Socket: sds.Config{Path: *socket},
	})
}

func open(ctx context.Context, dir, binary, pin string) (ca.Client, func() error, error) {
	if binary == "" {
		c, err := fileca.Open(ctx, fileca.Settings{Dir: dir})
		return c, c.Close, err
	}
	p, err := pluginhost.Open(ctx, pluginhost.Options{Dirs: []string{filepath.Dir(binary)}},
		pluginhost.Entry{Name: "file", SHA256: pin, Settings: map[string]any{"dir": dir}})
	return p, p.Close, err
}
