// Command countersign-ra is a registration authority: it signs the certificate requests of
// Kubernetes clusters with any provider, as far as its rules allow. "countersign ra"
// verifies and runs it.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/program"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(program.Run)) }
