// Package explain holds the commands that look at a configuration: [Command].
package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/agent"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
)

// Command makes `config` with what is below it.
func Command() *cobra.Command {
	return cli.Group("config", "Look at the configuration that an agent with the same flags and environment would have", explainCommand(), checkCommand())
}

func explainCommand() *cobra.Command {
	var in settings.Flags
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
			c, wrong := in.Read()
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
	in.AddFlags(cmd.Flags())
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
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, s.Kind, s.Place(), s.Rule)
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

// answer is the sentence about "default", which every Envoy asks for.
func answer(authority config.Choice, secrets []config.Source) string {
	if authority.Entry != "" {
		return fmt.Sprintf("%s is signed by %s, because %s", config.DefaultSecret, authority.Entry, authority.Rule)
	}
	for _, s := range secrets {
		if s.Name == config.DefaultSecret {
			return fmt.Sprintf("%s comes from %s, because %s", s.Name, s.Place(), s.Rule)
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
	var in settings.Flags
	cmd := &cobra.Command{
		Use: "check", Short: "Validate the configuration; nothing is run",
		Long: `Validate the configuration and find and verify the providers' binaries. Nothing is
run: what only a provider knows of its settings is checked when the agent starts.

It exits with 2 where a setting is wrong.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.Read()
			if err == nil {
				err = agent.Verify(c)
			}
			if err != nil {
				return cli.Wrong(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the configuration is good; %s\n", answer(c.Choice(), c.Sources()))
			return nil
		},
	}
	in.AddFlags(cmd.Flags())
	return cmd
}
