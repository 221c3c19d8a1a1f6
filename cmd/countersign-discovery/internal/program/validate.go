package program

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
)

func validateCommand(env environ.Vars) *cobra.Command {
	return daemon.Validate(flags(env), `Notes name what serve would wait for, such as a file that does not exist yet. The exit
code is 2 if a setting is wrong.`, verify, notes)
}

// verify makes everything that serve does, and closes it.
func verify(ctx context.Context, env environ.Vars, c *config.Config) error {
	s := &service{config: *c, env: env, log: slog.New(slog.DiscardHandler), metrics: newMetrics(), dry: true}
	err := s.make(ctx)
	_ = s.close() // nothing was started
	return err
}

// lookIntoFolders returns what serve would not take from the folders that it follows, and what is
// of no use there.
func lookIntoFolders(c *config.Config) (all []string) {
	if c.Remotes.Folder != "" {
		faults, _ := fleet.CheckFolder(c.Remotes.Folder, c.Remotes.Rules()) // a missing folder has its own note
		for _, fault := range faults {
			all = append(all, "remotes.folder: "+fault)
		}
	}
	resources, err := folder.New(folder.Config{Path: c.Resources.Folder, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return all // not configured, or a wrong setting
	}
	for _, file := range resources.Status().Files {
		if file.Reason != "" {
			all = append(all, "resources.folder: "+file.Reason)
		}
		for _, warning := range file.Warnings {
			all = append(all, fmt.Sprintf("resources.folder: %s: %s", file.Name, warning))
		}
	}
	return all
}

// notes returns what does not keep a service from starting, but from being of use.
func notes(env environ.Vars, c *config.Config) (all []string) {
	all = settings.OvertakenPins(env, c.Signed())
	if !c.Cluster.Disabled && c.Cluster.Kubeconfig == "" && env.Get("KUBERNETES_SERVICE_HOST") == "" {
		all = append(all, "cluster.kubeconfig is not set: serve needs a pod's account, and this is not a pod")
	}
	look := func(setting, path string) {
		if _, err := os.Stat(path); path != "" && err != nil {
			all = append(all, fmt.Sprintf("%s: %s; serve waits for it", setting, err))
		}
	}
	look("certificate.chain_file", c.Certificate.ChainFile)
	look("certificate.key_file", c.Certificate.KeyFile)
	for _, d := range c.TrustDomains {
		look("trust_domains."+d.Name+".roots_file", d.RootsFile)
		look("trust_domains."+d.Name+".bundle.root_file", d.Bundle.RootFile)
	}
	for i, a := range c.Authenticators {
		look(fmt.Sprintf("authenticators.%d.jwks_file", i), a.JWKSFile)
		look(fmt.Sprintf("authenticators.%d.root_file", i), a.RootFile)
	}
	look("remotes.folder", c.Remotes.Folder)
	all = append(all, lookIntoFolders(c)...)
	if !c.Cluster.Disabled { // its kubeconfigs of other clusters are Secrets, or in remotes.folder
		all = append(all, settings.GatewayNote("limits", c.Limits.AuthenticationsOfAddress, c.Limits.ConnectionsOfAddress))
	}
	return all
}
