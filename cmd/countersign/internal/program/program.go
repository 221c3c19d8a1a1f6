// Package program is the program countersign: [Run] is what its main calls.
package program

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/agent"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/explain"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/handover"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/provider"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/secrets"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/setup"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/top"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// Run is the [cli.Program].
func Run(ctx context.Context, args []string, env environ.Vars, streams cli.IO) int {
	below := []*cobra.Command{agent.Command(env)}
	if len(args) == 0 || args[0] != below[0].Name() { // an agent starts without the others
		below = append(below, setup.Command(), explain.Command(env), secrets.Command(env), top.Command(env), provider.Command(env),
			handover.Command(env, catalog.Discovery), handover.Command(env, catalog.RA), cli.Version(),
			cli.Topic("files", "Files of the agent", files), cli.Topic("environment", "Variables", environment))
	}
	return cli.Execute(ctx, cli.Root("countersign", "Get certificates from any CA and keep them fresh in any proxy or program", below...), args, streams)
}
