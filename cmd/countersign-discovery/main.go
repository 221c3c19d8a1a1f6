// Command countersign-discovery is a discovery service for many clusters. It serves gateways
// and sidecars the secrets they are allowed to have, and other Envoy configuration, over one
// authenticated stream. "countersign discovery" verifies and runs it.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

func main() { os.Exit(run()) }

func run() int {
	hangups := cli.CatchHangups()
	return cli.Run(hangups, cli.Root("countersign-discovery", "Secret service for many clusters: ADS and SDS for authenticated Envoys",
		serveCommand(), cli.Config(config.Schema, validateCommand(), daemon.Explain(flags())), statusCommand(), cli.Version()))
}
