package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/control-plane/cmd/countersign-discovery/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
)

// settings are the flags that "serve", "validate" and "explain" share.
type settings struct {
	file string
	dirs []string
}

func (s *settings) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.file, "config", "", "configuration `file`, in YAML (required)")
	cmd.Flags().StringSliceVar(&s.dirs, "provider-dir", nil, "`folders` to search for providers before those of the configuration (repeatable)")
}

func (s *settings) read() (config.Config, error) {
	if s.file == "" {
		return config.Config{}, cli.Wrong(errors.New("--config is required: name the configuration file"))
	}
	c, err := config.Read(s.file)
	if err != nil {
		return c, cli.Wrong(err)
	}
	c.SearchFirst(s.dirs)
	return c, nil
}

func explainCommand() *cobra.Command {
	var in settings
	cmd := &cobra.Command{
		Use: "explain", Short: "Show every setting with its origin, and possible credentials as (set)", Args: cli.NoArgs,
	}
	in.addFlags(cmd)
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, wrong := in.read()
		if err := explain(cmd.OutOrStdout(), c, *output); err != nil {
			return err
		}
		return wrong
	}
	return cmd
}

func explain(w io.Writer, c config.Config, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(c.Explain())
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, e := range c.Explain() {
		fmt.Fprintf(table, "%s\t%v\t%s\n", e.Setting, e.Value, e.From)
	}
	return table.Flush()
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the configuration's JSON Schema, for editors", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), config.Schema)
			return err
		},
	}
}
