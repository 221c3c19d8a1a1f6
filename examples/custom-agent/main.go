// Command custom-agent is a minimal agent of your own: a provider's binary signs, and SDS and the
// SPIFFE Workload API serve the secrets. Its settings, and where they come from, are up to
// you; this one has flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "custom-agent:", err)
		os.Exit(1)
	}
}

func run() error {
	binary := flag.String("provider", "", "path of countersign-provider-file")
	pin := flag.String("sha256", "", "SHA-256 of the binary, in hex")
	dir := flag.String("ca", "ca", "folder of the CA, created if missing")
	sockets := flag.String("sockets", ".", "folder for the sockets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	provider, err := pluginhost.Open(ctx, pluginhost.Options{Dirs: []string{filepath.Dir(*binary)}, Log: log}, pluginhost.Entry{
		Name: "file", SHA256: *pin, Settings: map[string]any{"dir": *dir, "self_signed": true},
	})
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, provider, *sockets, log), provider.Close())
}

// serve is all that an agent with its own [ca.Client] needs.
func serve(ctx context.Context, authority ca.Client, sockets string, log *slog.Logger) error {
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		return err
	}
	return agent.Run(ctx, agent.Config{
		Authorities: []secret.Authority{{Name: "mine", Client: authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, Authorities: []string{"mine"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"mine"}},
		},
		Socket:      sds.Config{Path: filepath.Join(sockets, "sds.sock")},
		WorkloadAPI: workloadapi.Config{Path: filepath.Join(sockets, "spiffe.sock")},
		Log:         log,
	})
}
