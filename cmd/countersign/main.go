// Command countersign gets certificates from any certificate authority and keeps them fresh
// in any proxy or program: "countersign agent" serves them over SDS, "countersign secrets
// watch" shows what is served.
package main

import (
	"context"
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/agent"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/explain"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/handover"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/provider"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/secrets"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/top"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

func main() { os.Exit(cli.Main(run)) }

func run(ctx context.Context, args []string, _ environ.Vars, streams cli.IO) int {
	return cli.Execute(ctx, cli.Root("countersign", "Get certificates from any CA and keep them fresh in any proxy or program",
		agent.Command(), explain.Command(), secrets.Command(), top.Command(), provider.Command(), handover.Command(catalog.Discovery), handover.Command(catalog.RA), cli.Version()), args, streams)
}
