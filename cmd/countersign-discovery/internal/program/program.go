// Package program is the program countersign-discovery: [Run] is what its main calls.
package program

import (
	"context"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// Run is the [cli.Program].
func Run(ctx context.Context, args []string, env environ.Vars, streams cli.IO) int {
	return cli.Execute(ctx, cli.Root("countersign-discovery", "Secret service for many clusters: ADS and SDS for authenticated Envoys",
		serveCommand(env), cli.Config(config.Schema, validateCommand(env), daemon.Explain(flags(env))), status.Command(), cli.Version()), args, streams)
}

// flags returns those that name a configuration.
func flags(env environ.Vars) daemon.Flags[*config.Config] {
	return daemon.Flags[*config.Config]{Env: env, Parse: func(env environ.Vars, file string, dirs []string) (*config.Config, error) {
		c, err := config.Read(env, file, dirs...)
		return &c, err
	}}
}
