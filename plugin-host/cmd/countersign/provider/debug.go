package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
)

func debugCommand() *cobra.Command {
	var in settings.Flags
	var unsafe bool
	cmd := &cobra.Command{
		Use: "debug NAME=PATH --insecure", Short: "Let an agent use a provider that you start in a debugger",
		Long: `Let an agent use a provider that you start in a debugger. It prints the command that
starts the provider, for another terminal, and the flag that attaches an agent; it goes
on until ^C. The provider may end and be started again as often as you like; an agent
that is attached goes on.

What runs so is neither pinned nor confined, and whoever is this user can read what goes
through it, tokens included: not for production, which is why --insecure is demanded.
It works for providers on sdk/provider and on any go-plugin's plugin.Serve.`,
		Args: oneProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, path, err := settings.ParseBuild(args[0])
			if err == nil {
				_, err = os.Stat(path)
			}
			if err != nil {
				return cli.Wrong(err)
			}
			if !unsafe {
				return cli.Wrong(errors.New("a provider in a debugger is neither pinned nor confined: say --insecure where that does no harm"))
			}
			look, err := lookWith(&in)
			if err != nil {
				return err
			}
			return attend(cmd, look.Options, name, path)
		},
	}
	in.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&unsafe, "insecure", false, "allow what is neither pinned nor confined")
	return cmd
}

// attend prints what to start, and goes on until ^C.
func attend(cmd *cobra.Command, opts pluginhost.Options, name, path string) error {
	d, err := pluginhost.NewDebugger(opts)
	if err != nil {
		return err
	}
	defer d.Close()
	run := filepath.Join(d.Folder(), "run")
	if err := os.WriteFile(run, []byte(runScript(d.Environment())), 0o700); err != nil { //nolint:gosec // it is there to be run
		return err
	}
	out, ctx := cmd.OutOrStdout(), cmd.Context()
	fmt.Fprintf(out, "Start the provider in another terminal:\n  %s dlv exec %s\n", run, path)
	m, err := d.Await(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // ^C
	case err != nil:
		return fmt.Errorf("ask the provider what it is: %w", err)
	case m.Name != name:
		return fmt.Errorf("the provider calls itself %q, not %q: attach it by its own name", m.Name, name)
	}
	fmt.Fprintf(out, "%s %s is there. Attach an agent:\n  countersign agent --insecure-attach %s=%s\n", m.Name, m.Version, name, d.Socket())
	<-ctx.Done()
	return nil
}

// runScript runs its arguments with the variables that make a program the provider.
func runScript(variables []string) string {
	var out strings.Builder
	out.WriteString("#!/bin/sh\n")
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&out, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	out.WriteString("exec \"$@\"\n")
	return out.String()
}
