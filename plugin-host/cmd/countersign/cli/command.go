package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Root makes a program's own command, with all others below it.
func Root(use, short string, below ...*cobra.Command) *cobra.Command {
	root := Group(use, short, below...)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Wrong(err) })
	return root
}

// Group makes a command that only has others below it.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Wrong(fmt.Errorf("there is no command %.256q; see \"%s --help\"", args[0], cmd.CommandPath()))
		}
		return cmd.Help()
	}}
	cmd.AddCommand(below...)
	return cmd
}

// NoArgs refuses arguments as a wrong setting.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Wrong(fmt.Errorf("%.256q is one argument too many: the command takes flags only", args[0]))
	}
	return nil
}

// WrongOutput refuses the value of --output; other is what is allowed beside json.
func WrongOutput(value, other string) error {
	return Wrong(fmt.Errorf("--output is %.256q: %s or json is allowed", value, other))
}
