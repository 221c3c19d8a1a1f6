package program

import (
	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

func validateCommand(env environ.Vars) *cobra.Command {
	return daemon.Validate(flags(env), `Notes name what serve would wait for, and what may be missing. The exit code is 2 if a
setting is wrong.`, verify, func(env environ.Vars, c *config.Config) []string { return c.Notes(env) })
}
