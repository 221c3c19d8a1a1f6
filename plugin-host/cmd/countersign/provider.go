package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/catalog"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/signers"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func providerCommand() *cobra.Command {
	return cli.Group("provider", "See, pin, examine and write providers",
		providerTestCommand(),
		providerListCommand(), providerLockCommand(), providerVerifyCommand(), providerInspectCommand(), providerDocsCommand(), providerDoctorCommand(), providerDebugCommand(), providerNewCommand())
}

func providerListCommand() *cobra.Command {
	var in settings
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
			look, err := in.look()
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
	in.addFlags(cmd.Flags())
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

// look reads as much of the configuration as it takes to look at providers: it need
// not be one that an agent could start with.
func (s *settings) look() (looked, error) {
	in, err := s.input()
	if err != nil {
		return looked{}, cli.Wrong(err)
	}
	c, _, err := config.Read(in)
	if err != nil {
		return looked{}, cli.Wrong(err)
	}
	out := looked{config: c, Catalog: &catalog.Catalog{Options: probeOptions(c), Locked: &lock.Lock{}}}
	for _, entry := range c.Providers {
		out.Entries = append(out.Entries, signers.Entry(entry, config.Build{}))
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
	return pluginhost.Options{Dirs: searchDirs(c.ProviderDirs), RuntimeDir: runtimeDir(c.RuntimeDir), Log: slog.New(slog.DiscardHandler)}
}

// searchDirs is where providers are looked for; only main reads the environment.
func searchDirs(first []string) []string {
	executable, _ := os.Executable() // where it is not known, its folder is not searched
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: os.Getenv("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable, DataHome: os.Getenv("XDG_DATA_HOME"), Home: os.Getenv("HOME"),
	})
}
