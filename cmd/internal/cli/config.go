package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// Config returns the command "config", which is the same in every program: its subcommands are
// "validate", "explain", "schema", which prints the JSON Schema of the file, and a program's own.
func Config(schema string, validate, explain *cobra.Command, own ...*cobra.Command) *cobra.Command {
	below := slices.Concat([]*cobra.Command{validate, explain, schemaCommand(schema)}, own)
	return Group("config", "Validate and explain the configuration", below...)
}

func schemaCommand(schema string) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file, for editors", Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), schema)
			return err
		},
	}
}
