// Package provider implements "countersign provider": it lists, pins, checks and generates
// providers. main adds its [Command]. Providers are run only for as long as a command needs
// them, and nothing is kept.
package provider

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/text"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// Command returns "provider" with its subcommands.
func Command(env environ.Vars) *cobra.Command {
	return cli.Group("provider", "List, pin, check and create providers",
		testCommand(),
		listCommand(env), installCommand(env), lockCommand(env), verifyCommand(env), inspectCommand(env), docsCommand(env), kitCommand(env), doctorCommand(env), debugCommand(env), debugRunCommand(), newCommand())
}

func listCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "list", Short: "List the installed providers with the SHA-256 to pin",
		Long: `List the installed providers with the SHA-256 to pin. Providers that are pinned, by
the lock file or by the configuration, are started once, without settings, to query
their version and abilities. No other provider is run.`,
		Args: cli.NoArgs,
	}
	addFlags(cmd, &in)
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		look, err := lookWith(&in)
		if err != nil {
			return err
		}
		all := look.List(cmd.Context())
		if *output == "json" {
			return text.WriteJSON(cmd.OutOrStdout(), all, "")
		}
		return writeInstalled(cmd.OutOrStdout(), all)
	}
	return cmd
}

// addFlags adds the flags of the settings that say where providers are found and how they
// are pinned, and those at more paths.
func addFlags(cmd *cobra.Command, in *settings.Flags, more ...string) {
	in.AddFlags(cmd, append([]string{"provider_dirs", "runtime_dir", "lock"}, more...)...)
}

func writeInstalled(w io.Writer, all []catalog.Item) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tSHA256\tPATH\tNOTE")
	for _, p := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Name, cmp.Or(p.Version, p.FileVersion, "-"), cmp.Or(p.SHA256, "-"), p.Path, p.Note())
	}
	return table.Flush()
}

// looked is a catalog with the configuration and the lock file that it was made from.
type looked struct {
	*catalog.Catalog
	config   config.Config
	lockPath string // empty: none
}

// lookWith reads the configuration only as far as is needed to find providers: it need not
// be complete enough for an agent.
func lookWith(in *settings.Flags) (looked, error) {
	c, err := in.ReadPartly()
	if err != nil {
		return looked{}, cli.Wrong(err)
	}
	out := looked{config: c, Catalog: &catalog.Catalog{Options: probeOptions(in.Env, c), Locked: &lock.Lock{}}}
	for _, entry := range c.Providers {
		out.Entries = append(out.Entries, entry.ToRun())
	}
	path, wanted := c.LockPath()
	out.lockPath, out.Named = path, wanted
	if path == "" {
		return out, nil
	}
	locked, err := lock.Read(path)
	switch {
	case err == nil:
		out.Locked = locked
	case wanted || !errors.Is(err, fs.ErrNotExist):
		return out, cli.Wrong(err)
	}
	return out, nil
}

// find finds the provider that an argument names.
func (l looked) find(what string) (catalog.Target, error) {
	target, err := l.Find(what)
	if err != nil {
		return target, cli.Wrong(err)
	}
	return target, nil
}

// probeOptions are the options for a provider that a command runs once. Its log is
// dropped; if it fails, the error has the last lines.
func probeOptions(env environ.Vars, c config.Config) pluginhost.Options {
	return pluginhost.Options{Dirs: wiring.SearchDirs(env, c.ProviderDirs), RuntimeDir: wiring.RuntimeDir(env, c.RuntimeDir), Log: slog.New(slog.DiscardHandler),
		LookupEnv: env.Lookup, CommandEnv: wiring.CommandEnv(env)}
}
