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

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

func configCommand() *cobra.Command {
	return group("config", "Look at the configuration that an agent with the same flags and environment would have", explainCommand(), checkCommand())
}

func explainCommand() *cobra.Command {
	var in settings
	var output string
	cmd := &cobra.Command{
		Use: "explain", Short: "Show every setting, where it came from, and who was chosen why; nothing is run",
		Long: `Show every setting, where it came from, and who was chosen by which rule. Nothing
is run. What may be a credential is shown as (set).

It exits with 2 where a setting is wrong, and shows what could be understood.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" && output != "table" {
				return wrongOutput(output, "table")
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
				return settingsError{wrong}
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
	Authority config.Choice      `json:"authority"` // who signs "default"
	Secrets   []origin           `json:"secrets"`
}

// origin says where a secret comes from.
type origin struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Providers []string `json:"providers"` // who may sign it, in order, or whose roots it has
}

func explain(c config.Config) explained {
	out := explained{Settings: c.Explain(), Authority: c.Choice(), Secrets: []origin{}}
	for _, s := range c.Secrets {
		out.Secrets = append(out.Secrets, origin{s.Name, s.Kind, s.Providers})
	}
	return out
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
	fmt.Fprintln(table, "\nSECRET\tKIND\tPROVIDERS")
	for _, s := range e.Secrets {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Kind, strings.Join(s.Providers, ", "))
	}
	if err := table.Flush(); err != nil || e.Authority.Entry == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s is signed by %s, because %s\n", config.DefaultSecret, e.Authority.Entry, e.Authority.Rule)
	return err
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.read()
			if err == nil {
				err = verify(c)
			}
			if err != nil {
				return settingsError{err}
			}
			choice, does := c.Choice(), "is served"
			if choice.Entry != "" {
				does = "is signed by " + choice.Entry
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the configuration is good; %s %s, because %s\n", config.DefaultSecret, does, choice.Rule)
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
