package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

func configCommand() *cobra.Command {
	return cli.Group("config", "Look at the configuration that an agent with the same flags and environment would have", explainCommand(), checkCommand())
}

func explainCommand() *cobra.Command {
	var in settings
	var output string
	cmd := &cobra.Command{
		Use: "explain", Short: "Show every setting, where it came from, and who was chosen why; nothing is run",
		Long: `Show every setting, where it came from, and who was chosen by which rule. Nothing
is run. What may be a credential is shown as (set).

It exits with 2 where a setting is wrong, and shows what could be understood.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" && output != "table" {
				return cli.WrongOutput(output, "table")
			}
			c, wrong := in.read()
			write := writeExplained
			if output == "json" {
				write = encodeExplained
			}
			if err := write(cmd.OutOrStdout(), explain(c)); err != nil {
				return err
			}
			if wrong != nil {
				return cli.Wrong(wrong)
			}
			return nil
		},
	}
	in.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// explained is what `config explain` shows.
type explained struct {
	Settings  []config.Explained `json:"settings"`
	Authority config.Choice      `json:"authority"`         // who signs "default"
	Socket    string             `json:"socket"`            // which the agent serves; empty: that is off
	Gateway   string             `json:"gateway,omitempty"` // the gateway's socket, where it is on
	Secrets   []config.Source    `json:"secrets"`
}

func explain(c config.Config) explained {
	e := explained{Settings: c.Explain(), Authority: c.Choice(), Socket: c.ListenPath(), Secrets: c.Sources()}
	if c.Gateway.Enabled {
		e.Gateway = c.Gateway.Socket
	}
	return e
}

func encodeExplained(w io.Writer, e explained) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(e)
}

func writeExplained(w io.Writer, e explained) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, s := range e.Settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Setting, shortly(s.Value), s.From)
	}
	fmt.Fprintln(table, "\nSECRET\tKIND\tFROM\tBECAUSE")
	for _, s := range e.Secrets {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, s.Kind, placeOf(s), s.Rule)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s; the agent serves %s\n", answer(e.Authority, e.Secrets), e.sockets())
	return err
}

// sockets are those that the agent serves, as a sentence ends with them.
func (e explained) sockets() string {
	var all []string
	if e.Socket != "" {
		all = append(all, e.Socket)
	}
	if e.Gateway != "" {
		all = append(all, "the gateway's "+e.Gateway)
	}
	return strings.Join(all, " and ")
}

// placeOf is what answers a name, in one cell.
func placeOf(s config.Source) string {
	switch {
	case s.Socket != "":
		return "socket " + s.Socket
	case len(s.Files) > 0:
		return "files " + strings.Join(s.Files, ", ")
	case len(s.Providers) == 0 || s.Providers[0] == "":
		return "-" // which the error says
	}
	return strings.Join(s.Providers, ", ")
}

// answer is the sentence about "default", which every Envoy asks for.
func answer(authority config.Choice, secrets []config.Source) string {
	if authority.Entry != "" {
		return fmt.Sprintf("%s is signed by %s, because %s", config.DefaultSecret, authority.Entry, authority.Rule)
	}
	for _, s := range secrets {
		if s.Name == config.DefaultSecret {
			return fmt.Sprintf("%s comes from %s, because %s", s.Name, placeOf(s), s.Rule)
		}
	}
	return "nothing answers " + config.DefaultSecret + " yet"
}

// shortly writes a value in one line; - is none.
func shortly(value any) string {
	v := reflect.ValueOf(value)
	switch {
	case value == nil, v.Kind() == reflect.Pointer, v.Kind() == reflect.String && v.Len() == 0, v.Kind() == reflect.Slice && v.Len() == 0:
		return "-"
	case v.Kind() == reflect.String:
		return v.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func checkCommand() *cobra.Command {
	var in settings
	cmd := &cobra.Command{
		Use: "check", Short: "Validate the configuration; nothing is run",
		Long: `Validate the configuration and find and verify the providers' binaries. Nothing is
run: what only a provider knows of its settings is checked when the agent starts.

It exits with 2 where a setting is wrong.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.read()
			if err == nil {
				err = verify(c)
			}
			if err != nil {
				return cli.Wrong(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the configuration is good; %s\n", answer(c.Choice(), c.Sources()))
			return nil
		},
	}
	in.addFlags(cmd.Flags())
	return cmd
}

// verify does what a start does before it runs anything.
func verify(c config.Config) error {
	log := slog.New(slog.DiscardHandler)
	providers, err := findProviders(c, log)
	if err != nil {
		return err
	}
	defer providers.close() //nolint:errcheck // nothing of it has been started
	_, err = agentConfig(c, providers, newMetrics(providers), log)
	return err
}
