// Command agent is an agent for measuring: the same one with its provider in the
// process or as a verified process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	receipts := flag.String("receipts", "", "where receipts are kept; empty: none are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	authority, err := open(ctx, *dir, *binary, *pin, *receipts)
	if err != nil {
		return err
	}
	defer authority.Close()
	id, err := pki.NewIdentity("spiffe://example.org/ns/default/sa/web", nil, nil)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Authorities: []secret.Authority{{Name: "file", Client: authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour, Authorities: []string{"file"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"file"}},
		},
		Socket: sds.Config{Path: *socket},
	})
	if err != nil {
		return err
	}
	// As in countersign: the first requests wait for the provider's process.
	if p, ok := authority.(*pluginhost.Provider); ok {
		if err := p.Start(ctx); err != nil {
			return errors.Join(err, a.Close())
		}
	}
	return a.Run(ctx)
}

// authority is one of either kind.
type authority interface {
	ca.Client
	io.Closer
}

func open(ctx context.Context, dir, binary, pin, receipts string) (authority, error) {
	if binary == "" {
		return fileca.Open(ctx, fileca.Settings{Dir: dir})
	}
	return pluginhost.Find(pluginhost.Options{Dirs: []string{filepath.Dir(binary)}, ReceiptDir: receipts},
		pluginhost.Entry{Name: "file", SHA256: pin, Settings: map[string]any{"dir": dir}})
}
