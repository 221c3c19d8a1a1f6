// Command countersign-discovery is a discovery service for many clusters. It serves gateways
// and sidecars the secrets they are allowed to have, and other Envoy configuration, over one
// authenticated stream. "countersign discovery" verifies and runs it.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/program"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(program.Run)) }
