package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/text"
)

// Config is a program's configuration.
type Config interface {
	// Explain returns every setting with its origin; possible credentials are hidden.
	Explain() []agent.Explained
}

// Flags are those that name a configuration. Parse reads the file, for providers that are searched
// for in dirs first; its errors are settings that are wrong, and with them it returns what could be
// parsed. Env is the program's environment.
type Flags[C Config] struct {
	Env   environ.Vars
	Parse func(env environ.Vars, file string, dirs []string) (C, error)
	File  string
	dirs  []string
}

// Add adds the flags to a command.
func (f *Flags[C]) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.File, "config", "", "configuration `file`, in YAML (required)")
	cmd.Flags().StringSliceVar(&f.dirs, "provider-dir", nil, "`folders` to search for providers before those of the configuration (repeatable)")
}

// Read reads the configuration that the flags name.
func (f *Flags[C]) Read() (c C, err error) {
	if f.File == "" {
		return c, cli.Wrong(errors.New("--config is required: name the configuration file"))
	}
	if c, err = f.Parse(f.Env, f.File, f.dirs); err != nil {
		err = cli.Wrong(err)
	}
	return c, err
}

// Explain returns the command "config explain".
func Explain[C Config](in Flags[C]) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain", Short: "Show every setting with its origin, and possible credentials as (set)", Args: cli.NoArgs,
	}
	in.Add(cmd)
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if in.File == "" {
			_, err := in.Read()
			return err
		}
		c, wrong := in.Read()
		if err := explain(cmd.OutOrStdout(), c, *output); err != nil {
			return err
		}
		return wrong
	}
	return cmd
}

func explain(w io.Writer, c Config, output string) error {
	if output == "json" {
		return text.WriteJSON(w, c.Explain(), "")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, e := range c.Explain() {
		fmt.Fprintf(table, "%s\t%v\t%s\n", e.Setting, e.Value, e.From)
	}
	return table.Flush()
}

// Validate returns the command "config validate". long ends its help text: what the notes name. verify
// makes everything that the service has, and starts nothing; notes returns what does not keep the
// service from starting, but may keep it from being of use.
func Validate[C Config](in Flags[C], long string, verify func(context.Context, environ.Vars, C) error, notes func(environ.Vars, C) []string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate", Short: "Validate the configuration without starting anything", Args: cli.NoArgs,
		Long: `Validate the configuration as serve does, and find and verify the providers' binaries.
Start nothing and connect to nothing. Run it where the service will run, as it looks for
files, folders and providers.

` + long,
	}
	in.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := in.Read()
		if err == nil {
			err = verify(cmd.Context(), in.Env, c)
		}
		if err != nil {
			return err
		}
		for _, note := range notes(in.Env, c) {
			fmt.Fprintln(cmd.OutOrStdout(), "note:", note)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), in.File, "is valid")
		return err
	}
	return cmd
}
