package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
)

// Version makes the command that prints what the program is.
func Version() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		b := buildinfo.This()
		switch output {
		case "json":
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		case "text":
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s %s\n", cmd.Root().Name(), b.Version, b.Platform, b.Go)
			return err
		}
		return WrongOutput(output, "text")
	}}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
