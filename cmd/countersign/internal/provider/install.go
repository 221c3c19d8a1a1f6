package provider

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/install"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

func installCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	var request install.Request
	var key string
	cmd := &cobra.Command{
		Use: "install NAME[@VERSION]", Short: "Install a signed provider from an index, and lock it",
		Long: `Install a provider from a folder or server that has a signed index, and pin it in the
lock file. The given minisign key must have signed the index, and the provider for this
name, version and platform; an index that is older than one seen before is refused.

The provider is put into the first --provider-dir as countersign-provider-NAME@VERSION,
and STARTED ONCE to be locked, as by "provider lock". An agent that runs takes up the
new build by itself. To go back, lock the version before.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.HasSuffix(args[0], "@") { // acme@ is not acme
				return cli.Wrong(errors.New("name one provider, as in \"countersign provider install acme@1.2.0\""))
			}
			return nil
		},
	}
	addFlags(cmd, &in)
	flags := cmd.Flags()
	flags.StringVar(&request.From, "from", "", "take it from this `source`: a folder or index file, or an https URL of either")
	flags.StringVar(&key, "public-key", "", "`file` with the minisign public key that verifies the index and the provider")
	flags.StringSliceVar(&request.Hosts, "redirect-host", nil, "further `host` that the server may redirect to")
	flags.BoolVar(&request.Older, "allow-older", false, "take an index that is older than one seen before")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		look, err := lookToLock(&in)
		if err != nil {
			return err
		}
		request.Name, request.Version, _ = strings.Cut(args[0], "@")
		if request.From == "" || key == "" || len(look.config.ProviderDirs) == 0 {
			return cli.Wrong(errors.New("--from, --public-key and --provider-dir are required"))
		}
		if request.Key, err = install.ReadKey(key); err != nil {
			return cli.Wrong(err)
		}
		if request.Folder, err = filepath.Abs(look.config.ProviderDirs[0]); err != nil {
			return err
		}
		return installed(cmd, look, request)
	}
	return cmd
}

func installed(cmd *cobra.Command, look looked, request install.Request) error {
	done, err := install.Install(cmd.Context(), request)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "installed", done.Path)
	target, err := look.find(done.Path)
	if err != nil {
		return err
	}
	target.Pin = done.SHA256 // no other bytes run, should the file change now
	now, before, err := look.Lock(cmd.Context(), target)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), lockedSentence(now, before))
	return look.Locked.Write(look.lockPath)
}
