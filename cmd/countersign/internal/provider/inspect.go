package provider

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/schema"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/text"
)

func inspectCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "inspect NAME[@VERSION] | PATH", Short: "Run a provider once and show its abilities and settings",
		Long: `Run a provider once, without settings, and show its abilities and the settings that
it accepts. A provider given by name must be pinned; one given by path (with a / in
it) is run as it is.`,
		Args: oneProvider, ValidArgsFunction: in.CompleteProviders,
	}
	addFlags(cmd, &in)
	output := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seen, err := inspect(cmd, &in, args[0])
		if err != nil {
			return err
		}
		if *output == "json" {
			return text.WriteJSON(cmd.OutOrStdout(), seen, "")
		}
		return seen.write(cmd.OutOrStdout())
	}
	return cmd
}

func docsCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "docs NAME[@VERSION] | PATH", Short: "Run a provider once and print its settings as Markdown",
		Args: oneProvider, ValidArgsFunction: in.CompleteProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			seen, err := inspect(cmd, &in, args[0])
			if err != nil {
				return err
			}
			return schema.WriteMarkdown(cmd.OutOrStdout(), seen.described.Metadata, seen.Settings)
		},
	}
	addFlags(cmd, &in)
	return cmd
}

func kitCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "kit NAME[@VERSION] | PATH", Short: "Run a provider once and print a kit file for its tests",
		Long: `Run a provider once, without settings, and print a kit file for "countersign provider
test" and for the tests of a provider in Go. Required settings are FILL-IN, which no
test takes; all others are comments with their defaults. Secret settings are references,
as in the agent's configuration.`,
		Args: oneProvider, ValidArgsFunction: in.CompleteProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			seen, err := inspect(cmd, &in, args[0])
			if err != nil {
				return err
			}
			return schema.WriteKit(cmd.OutOrStdout(), seen.Settings)
		},
	}
	addFlags(cmd, &in)
	return cmd
}

func oneProvider(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Wrong(fmt.Errorf("got %d arguments: name one provider, by its name or its path", len(args)))
	}
	return nil
}

// inspected is what a provider reports about itself.
type inspected struct {
	Name           string           `json:"name"`
	Version        string           `json:"version"`
	Protocol       int              `json:"protocol"`
	Authentication string           `json:"authentication"`
	Abilities      []string         `json:"abilities"`
	Facts          []string         `json:"facts"` // about its CA
	Path           string           `json:"path"`
	SHA256         string           `json:"sha256"`
	Pinned         bool             `json:"pinned"`
	Settings       []schema.Setting `json:"settings"`
	Schema         schema.JSON      `json:"schema,omitempty"` // of the settings, as the provider has it

	described catalog.Description
}

func inspect(cmd *cobra.Command, in *settings.Flags, what string) (inspected, error) {
	look, err := lookWith(in)
	if err != nil {
		return inspected{}, err
	}
	target, err := look.find(what)
	if err != nil {
		return inspected{}, err
	}
	if target.Pin == "" && !strings.Contains(what, "/") {
		return inspected{}, cli.Wrong(fmt.Errorf("provider %q is not pinned and is not run by name: pin it with \"countersign provider lock %s\", or give its path, %s", what, what, target.Path))
	}
	d, err := look.Describe(cmd.Context(), target)
	if err != nil {
		return inspected{}, catalog.Named(target.Path, err)
	}
	seen := inspected{
		Name: d.Name, Version: d.Version, Protocol: d.Protocol, Authentication: string(d.Authentication),
		Path: target.Path, SHA256: d.SHA256, Facts: append([]string{}, overview.FactsOf(d.Facts)...), Pinned: target.Pin != "", Settings: append([]schema.Setting{}, d.Settings...), Schema: schema.JSON(d.SettingsSchema), described: d,
	}
	for _, ability := range d.Abilities {
		seen.Abilities = append(seen.Abilities, ability.String())
	}
	return seen, nil
}

func (i inspected) write(w io.Writer) error {
	pinned := "no"
	if i.Pinned {
		pinned = "yes"
	}
	fmt.Fprintf(w, "name            %s\nversion         %s\nabilities       %s\nfacts           %s\nprotocol        %d\nauthentication  %s\nfile            %s\nsha256          %s\npinned          %s\n\n",
		i.Name, i.Version, strings.Join(i.Abilities, ", "), cmp.Or(strings.Join(i.Facts, ", "), "none"), i.Protocol, i.Authentication, i.Path, i.SHA256, pinned)
	if len(i.Settings) == 0 {
		fmt.Fprintln(w, "It has no settings.")
		return nil
	}
	return schema.WriteTable(w, i.Settings)
}
