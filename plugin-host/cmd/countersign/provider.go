package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func providerCommand() *cobra.Command {
	return group("provider", "Look at the installed providers", providerListCommand(), providerTestCommand())
}

// installed is a provider's binary as `provider list` shows it.
type installed struct {
	Name       string `json:"name"`
	Path       string `json:"path"`
	SHA256     string `json:"sha256,omitempty"`
	ShadowedBy string `json:"shadowed_by,omitempty"`
	Refused    string `json:"refused,omitempty"`
}

func providerListCommand() *cobra.Command {
	var output string
	var dirs []string
	cmd := &cobra.Command{
		Use: "list", Short: "Show every provider that is found, with the SHA-256 to pin; nothing is run",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := listInstalled(searchDirs(dirs))
			switch output {
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			case "table":
				return writeInstalled(cmd.OutOrStdout(), all)
			}
			return wrongOutput(output, "table")
		},
	}
	cmd.Flags().StringSliceVar(&dirs, "provider-dir", nil, "folders to search before all others")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// searchDirs is where providers are looked for; only main reads the environment.
func searchDirs(first []string) []string {
	executable, _ := os.Executable() // where it is not known, its folder is not searched
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: os.Getenv("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable, DataHome: os.Getenv("XDG_DATA_HOME"), Home: os.Getenv("HOME"),
	})
}

func listInstalled(dirs []string) []installed {
	all := []installed{} // [] in JSON, not null
	for _, found := range (pluginhost.Finder{Dirs: dirs}).List() {
		entry := installed{Name: found.Name, Path: found.Path, ShadowedBy: found.ShadowedBy}
		if found.Refused != nil {
			entry.Refused = found.Refused.Error()
		} else if sum, err := found.SHA256(); err != nil {
			entry.Refused = err.Error()
		} else {
			entry.SHA256 = sum
		}
		all = append(all, entry)
	}
	return all
}

func writeInstalled(w io.Writer, all []installed) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSHA256\tPATH\tNOTE")
	for _, p := range all {
		note := p.Refused
		if p.ShadowedBy != "" {
			note = "shadowed by " + p.ShadowedBy
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.Name, p.SHA256, p.Path, note)
	}
	return table.Flush()
}
