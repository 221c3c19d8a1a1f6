package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

// build is what this binary is made of.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		b := thisBuild()
		switch output {
		case "json":
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		case "text":
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "countersign %s %s %s\n", b.Version, b.Platform, b.Go)
			return err
		}
		return wrongOutput(output, "text")
	}}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func wrongOutput(value, other string) error {
	return settingsError{fmt.Errorf("--output is %.256q: %s or json is allowed", value, other)}
}
