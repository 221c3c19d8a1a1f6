// Command countersign-ra is a registration authority: it signs the certificate requests of
// Kubernetes clusters with any provider, as far as its rules allow. "countersign ra"
// verifies and runs it.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

// program is the name of this one.
const program = "countersign-ra"

func main() { os.Exit(run()) }

func run() int {
	hangups := cli.CatchHangups()
	return cli.Run(hangups, cli.Root(program, "Registration authority: certificates of any CA for the pods of Kubernetes",
		serveCommand(), cli.Config(config.Schema, validateCommand(), daemon.Explain(flags())), policyCommand(), statusCommand(), cli.Version()))
}

// flags returns those that name a configuration.
func flags() daemon.Flags[*config.Config] {
	return daemon.Flags[*config.Config]{Parse: func(file string, dirs []string) (*config.Config, error) {
		c, err := config.Read(file, dirs...)
		return &c, err
	}}
}
