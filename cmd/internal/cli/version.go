package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/text"
)

// Version returns the command that prints the version.
func Version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: NoArgs}
	output := Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *output == "json" {
			return text.WriteJSON(cmd.OutOrStdout(), buildinfo.This(), "")
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine(cmd.Root().Name()))
		return err
	}
	return cmd
}

// versionLine is what "version" and --version print.
func versionLine(program string) string {
	b := buildinfo.This()
	line := fmt.Sprintf("%s %s %s %s", program, b.Version, b.Platform, b.Go)
	if b.FIPS != "" {
		line += " FIPS 140-3 module " + b.FIPS
	}
	return line
}
