// Command countersign gets certificates from any certificate authority and keeps them fresh
// in any proxy or program: "countersign agent" serves them over SDS, "countersign secrets
// watch" shows what is served.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/program"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(program.Run)) }
