// Command countersign-discovery is the secret service of many clusters: gateways and
// sidecars get the secrets that they may have, and what else Envoy needs, over one
// authenticated stream. `countersign discovery` verifies it and runs it.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
)

func main() { os.Exit(run()) }

func run() int {
	return cli.Run(cli.Root("countersign-discovery", "The secret service of many clusters: ADS and SDS for Envoys that it knows",
		serveCommand(), validateCommand(), explainCommand(), schemaCommand(), statusCommand(), cli.Version()))
}
