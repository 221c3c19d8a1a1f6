// Package provider holds the commands that see, pin, examine and write providers:
// [Command].
package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/catalog"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/wiring"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// Command makes `provider` with what is below it.
func Command() *cobra.Command {
	return cli.Group("provider", "See, pin, examine and write providers",
		testCommand(),
		listCommand(), lockCommand(), verifyCommand(), inspectCommand(), docsCommand(), doctorCommand(), debugCommand(), newCommand())
}

func listCommand() *cobra.Command {
	var in settings.Flags
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "Show every provider that is found, with the SHA-256 to pin",
		Long: `Show every provider that is found, with the SHA-256 to pin. Those that are pinned, by
the lock file or by an entry of the configuration, are started once, without settings,
to ask what they are; no other is run.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" && output != "table" {
				return cli.WrongOutput(output, "table")
			}
			look, err := lookWith(&in)
			if err != nil {
				return err
			}
			all := look.List(cmd.Context())
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			}
			return writeInstalled(cmd.OutOrStdout(), all)
		},
	}
	in.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func writeInstalled(w io.Writer, all []catalog.Item) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tSHA256\tPATH\tNOTE")
	for _, p := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Name, cmp.Or(p.Version, p.FileVersion, "-"), cmp.Or(p.SHA256, "-"), p.Path, p.Note())
	}
	return table.Flush()
}

// looked is a catalog, and where its lock file is or would be.
type looked struct {
	*catalog.Catalog
	config   config.Config
	lockPath string
}

// lookWith reads as much of the configuration as it takes to look at providers: it need
// not be one that an agent could start with.
func lookWith(in *settings.Flags) (looked, error) {
	given, err := in.Input()
	if err != nil {
		return looked{}, cli.Wrong(err)
	}
	c, _, err := config.Read(given)
	if err != nil {
		return looked{}, cli.Wrong(err)
	}
	out := looked{config: c, Catalog: &catalog.Catalog{Options: probeOptions(c), Locked: &lock.Lock{}}}
	for _, entry := range c.Providers {
		out.Entries = append(out.Entries, wiring.Entry(entry, config.Build{}))
	}
	path, wanted := c.LockPath()
	out.lockPath = path
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

// find finds the provider that an argument names; where there is none, the argument
// is wrong.
func (l looked) find(what string) (catalog.Target, error) {
	target, err := l.Find(what)
	if err != nil {
		return target, cli.Wrong(err)
	}
	return target, nil
}

// probeOptions are for a process that a command starts once. What it writes is not the
// command's output: of one that fails, the last words are in the error.
func probeOptions(c config.Config) pluginhost.Options {
	return pluginhost.Options{Dirs: settings.SearchDirs(c.ProviderDirs), RuntimeDir: settings.RuntimeDir(c.RuntimeDir), Log: slog.New(slog.DiscardHandler)}
}
