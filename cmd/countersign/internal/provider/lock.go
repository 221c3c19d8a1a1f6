package provider

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/install"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func lockCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "lock [NAME[@VERSION] | PATH]…", Short: "Pin the installed build of each provider in the lock file",
		Long: `Pin the installed build of the given providers, or of all providers of the
configuration, in the lock file. An agent then runs exactly these bytes.

Each provider is STARTED ONCE, without settings, supervised as in an agent, to query
its version: name only providers that you trust. The pinned bytes are those that ran.
To pin the program of "countersign discovery" or "countersign ra", name
countersign-discovery or countersign-ra; it is not started.

Several versions can be installed side by side as countersign-provider-NAME@VERSION;
the locked one runs. To go back, lock the version before: NAME@VERSION is also the file
countersign-provider-NAME if it reports that version. NAME alone is the version that is
locked now; any other file is named by its PATH (with a / in it).

The lock file is --lock, else countersign.lock beside the configuration. It holds one
build per platform. A provider of a package is left to the package's own lock file, which
is replaced with it, unless --lock (lock) names a file.`,
		ValidArgsFunction: in.CompleteProviders,
		RunE: func(cmd *cobra.Command, names []string) error {
			look, err := lookToLock(&in)
			if err != nil {
				return err
			}
			if len(names) == 0 && in.FileName() != "" {
				names = look.configured()
			}
			if len(names) == 0 {
				return cli.Wrong(errors.New("nothing to lock: name providers, as in \"countersign provider lock acme\", or a configuration with --config"))
			}
			return lockAll(cmd, look, names)
		},
	}
	addFlags(cmd, &in)
	return cmd
}

// lookToLock is lookWith for a lock file that need not exist yet.
func lookToLock(in *settings.Flags) (looked, error) {
	look, err := lookWith(in)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return look, err
	}
	if look.Catalog == nil {
		return look, err
	}
	if look.lockPath == "" {
		return look, cli.Wrong(errors.New("no lock file: name it with --lock, or its configuration with --config"))
	}
	return look, nil
}

// configured returns the providers of the configuration.
func (l looked) configured() []string {
	var names []string
	for _, entry := range l.config.Providers {
		names = append(names, cmp.Or(entry.Provider, entry.Name))
	}
	return names
}

func lockAll(cmd *cobra.Command, look looked, names []string) error {
	left := 0 // to their packages
	for _, name := range names {
		if catalog.IsProgram(name) {
			if err := lockProgram(cmd, look, name); err != nil {
				return err
			}
			continue
		}
		target, err := look.find(name)
		if err != nil {
			return err
		}
		if path := look.OfPackage(target); path != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is pinned by %s, which its package replaces with it: nothing to lock\n", target.Label(), path)
			left++
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "starting %s once to query its version\n", target.Path)
		target.Pin = "" // that is what is being made
		now, before, err := look.Lock(cmd.Context(), target)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), lockedSentence(now, before))
		if other := look.Other(name); other != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "to lock %s instead, name it by its path: countersign provider lock %[1]s\n", other)
		}
	}
	if left == len(names) {
		return nil
	}
	return look.Locked.Write(look.lockPath)
}

func lockProgram(cmd *cobra.Command, look looked, name string) error {
	now, before, err := look.LockProgram(name)
	if err != nil {
		return cli.Wrong(err)
	}
	text := fmt.Sprintf("locked %s: %s/%s, SHA-256 %s", now.Name, now.OS, now.Arch, now.SHA256)
	switch {
	case before == now:
		text += ", unchanged"
	case before.SHA256 != "":
		text += "; previously SHA-256 " + before.SHA256
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

func lockedSentence(now, before lock.Provider) string {
	text := fmt.Sprintf("locked %s %s: protocol %d, %s/%s, SHA-256 %s", now.Name, now.Version, now.Protocol, now.OS, now.Arch, now.SHA256)
	before.SecretSettings, before.AddressSettings = now.SecretSettings, now.AddressSettings // follow from the build; older lock files lack them
	switch {
	case reflect.DeepEqual(before, now):
		return text + ", unchanged"
	case before.SHA256 != "" && before.Version == now.Version && before.SHA256 != now.SHA256:
		return text + "; the same version previously had SHA-256 " + before.SHA256
	case before.SHA256 != "":
		return text + fmt.Sprintf("; previously %s in %s", before.Version, before.File)
	}
	return text
}

func verifyCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify the installed providers against the lock file",
		Long: `Verify the installed providers against the lock file, and those of a package against
the package's own. Every file is read in full and none is run. Builds for other platforms
are listed but not verified.

With --public-key, each provider must also have a minisign signature of that key beside
it, as "provider install" and the archives of a release put it there.

The exit code is 1 if a provider does not match, or if none is for this platform.`,
		Args: cli.NoArgs,
	}
	addFlags(cmd, &in)
	key := cmd.Flags().String("public-key", "", "`file` with the minisign public key that must have signed each provider")
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		demanded := cmd.Flags().Changed("public-key")
		if demanded && *key == "" { // an unset variable of a script, perhaps
			return cli.Wrong(errors.New("--public-key is empty: name the file with the key, or leave it out"))
		}
		look, err := lookWith(&in)
		if err != nil {
			return err
		}
		all := look.Verify()
		if len(all) == 0 {
			return cli.Wrong(fmt.Errorf("nothing to verify: no provider is locked in %s; run \"countersign provider lock\"",
				cmp.Or(look.lockPath, "any lock file (--lock, --config)")))
		}
		if demanded {
			if err := demandSignatures(all, *key); err != nil {
				return cli.Wrong(err)
			}
		}
		return verifyAll(cmd.OutOrStdout(), all, *output, demanded)
	}
	return cmd
}

// demandSignatures refuses providers that the key did not sign. Programs are not signed on their own.
func demandSignatures(all []catalog.Verified, path string) error {
	key, err := install.ReadKey(path)
	if err != nil {
		return err
	}
	for i := range all {
		v := &all[i]
		if !v.Here || v.Refused != "" || v.Program {
			continue
		}
		if err := key.VerifyProvider(v.Path, v.Name, v.Version); err != nil {
			v.Refused = err.Error()
		}
	}
	return nil
}

// verifyAll reports the results. A program counts as verified, unless providers must be signed.
func verifyAll(w io.Writer, all []catalog.Verified, output string, signed bool) error {
	var err error
	if output == "json" {
		err = text.WriteJSON(w, all, "")
	} else {
		err = writeVerified(w, all)
	}
	wrong := 0
	for _, v := range all {
		if v.Refused != "" {
			wrong++
		}
	}
	switch {
	case wrong > 0:
		err = errors.Join(err, fmt.Errorf("%d of %d locked providers do not match", wrong, len(all)))
	case !slices.ContainsFunc(all, func(v catalog.Verified) bool { return v.Here && (!signed || !v.Program) }):
		err = errors.Join(err, fmt.Errorf("nothing was verified: no provider is locked for %s/%s; run \"countersign provider lock\"", runtime.GOOS, runtime.GOARCH))
	}
	return err
}

func writeVerified(w io.Writer, all []catalog.Verified) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tPLATFORM\tRESULT")
	for _, v := range all {
		result := "matches: " + v.Path
		switch {
		case !v.Here:
			result = "another platform, not verified"
		case v.Refused != "":
			result = v.Refused
		}
		fmt.Fprintf(table, "%s\t%s\t%s/%s\t%s\n", v.Name, cmp.Or(v.Version, "-"), v.OS, v.Arch, result)
	}
	return table.Flush()
}
