package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/debugger"
)

func debugCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	var unsafe bool
	cmd := &cobra.Command{
		Use: "debug NAME=PATH --insecure", Short: "Let an agent use a provider that you start in a debugger",
		Long: `Let an agent use a provider that you start in a debugger. Print the command that
starts the provider, to run in another terminal, and the flag that attaches an agent;
run until Ctrl-C. You may restart the provider as often as you like; an attached agent
reconnects.

The provider is neither pinned nor confined, and any process of this user can read its
traffic, tokens included. Do not use it in production; --insecure is required to confirm
this. It works with providers built on sdk/provider, on a library of sdk/languages or on
go-plugin's plugin.Serve.`,
		Args: oneProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, path, err := settings.ParseBuild(args[0])
			if err == nil {
				err = catalog.CheckFile(path)
			}
			if err != nil {
				return cli.Wrong(err)
			}
			if !unsafe {
				return cli.Wrong(errors.New("a provider in a debugger is neither pinned nor confined: add --insecure if that is acceptable"))
			}
			look, err := lookWith(&in)
			if err != nil {
				return err
			}
			return attend(cmd, look.Options, name, path)
		},
	}
	addFlags(cmd, &in)
	cmd.Flags().BoolVar(&unsafe, "insecure", false, "run the provider neither pinned nor confined (required)")
	return cmd
}

// attend prints the commands to run, and serves until Ctrl-C.
func attend(cmd *cobra.Command, opts pluginhost.Options, name, path string) error {
	d, err := debugger.New(opts.RuntimeDir, opts.Log)
	if err != nil {
		return err
	}
	defer d.Close()
	run := filepath.Join(d.Folder(), "run")
	with := debuggerFor(path)
	script, err := runScript(d, with.descriptors)
	if err == nil {
		err = os.WriteFile(run, []byte(script), 0o700) //nolint:gosec // it is a script to run
	}
	if err != nil {
		return err
	}
	out, ctx := cmd.OutOrStdout(), cmd.Context()
	fmt.Fprintf(out, "%s\nStart the provider in another terminal:\n  %s %s %s\n", with.advice, run, with.command, path)
	m, err := d.Await(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C
	case err != nil:
		return fmt.Errorf("query the provider's metadata: %w", err)
	case m.Name != name:
		return fmt.Errorf("the provider's name is %q, not %q: attach it by its own name", m.Name, name)
	}
	fmt.Fprintf(out, "%s %s is running. Attach an agent:\n  countersign agent --insecure-attach %s=%s\n", m.Name, m.Version, name, d.Socket())
	<-ctx.Done()
	return nil
}
