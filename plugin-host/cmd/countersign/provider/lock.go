package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/catalog"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func lockCommand() *cobra.Command {
	var in settings.Flags
	cmd := &cobra.Command{
		Use: "lock [NAME[@VERSION] | PATH]…", Short: "Pin the installed build of each provider in the lock file",
		Long: `Pin the installed build of each provider in the lock file: of those named, else of
all that the configuration has. An agent then runs these bytes and no others.

Each is STARTED ONCE, without settings, under the same supervision as in an agent, to
ask what it is: name what you trust. What is pinned are the bytes that ran.
The program of "countersign discovery" is pinned by its name, countersign-discovery,
and not started.

Several versions lie side by side as countersign-provider-NAME@VERSION; the one that
is locked is the one that runs. The lock file is --lock, else countersign.lock beside
the configuration; it has a build for each platform that it was made on.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			look, err := lookToLock(&in)
			if err != nil {
				return err
			}
			if len(names) == 0 && in.FileName() != "" {
				names = look.configured()
			}
			if len(names) == 0 {
				return cli.Wrong(errors.New("there is nothing to lock: name providers, as in countersign provider lock acme, or a configuration by --config"))
			}
			return lockAll(cmd, look, names)
		},
	}
	in.AddFlags(cmd.Flags())
	return cmd
}

// lookToLock takes a lock file that is not there yet.
func lookToLock(in *settings.Flags) (looked, error) {
	look, err := lookWith(in)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return look, err
	}
	if look.Catalog == nil {
		return look, err
	}
	if look.lockPath == "" {
		return look, cli.Wrong(errors.New("nobody says where the lock file is: name it by --lock, or the configuration that it belongs to by --config"))
	}
	return look, nil
}

// configured are the providers of a configuration's entries.
func (l looked) configured() []string {
	var names []string
	for _, entry := range l.config.Providers {
		names = append(names, cmp.Or(entry.Provider, entry.Name))
	}
	return names
}

func lockAll(cmd *cobra.Command, look looked, names []string) error {
	for _, name := range names {
		if name == catalog.Discovery {
			if err := lockProgram(cmd, look, name); err != nil {
				return err
			}
			continue
		}
		target, err := look.find(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is started once, to ask what it is\n", target.Path)
		now, before, err := look.Lock(cmd.Context(), target)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), lockedSentence(now, before))
	}
	return look.Locked.Write(look.lockPath)
}

func lockProgram(cmd *cobra.Command, look looked, name string) error {
	now, before, err := look.LockProgram(name)
	if err != nil {
		return cli.Wrong(err)
	}
	text := fmt.Sprintf("%s is locked: %s/%s, SHA-256 %s", now.Name, now.OS, now.Arch, now.SHA256)
	switch {
	case before == now:
		text += ", as before"
	case before.SHA256 != "":
		text += "; it had other bytes before, " + before.SHA256
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

func lockedSentence(now, before lock.Provider) string {
	text := fmt.Sprintf("%s %s is locked: protocol %d, %s/%s, SHA-256 %s", now.Name, now.Version, now.Protocol, now.OS, now.Arch, now.SHA256)
	switch {
	case before == now:
		return text + ", as before"
	case before.SHA256 != "" && before.Version == now.Version && before.SHA256 != now.SHA256:
		return text + "; the same version had other bytes before, " + before.SHA256
	case before.SHA256 != "":
		return text + fmt.Sprintf("; before, it was %s in %s", before.Version, before.File)
	}
	return text
}

func verifyCommand() *cobra.Command {
	var in settings.Flags
	var output string
	cmd := &cobra.Command{
		Use: "verify", Short: "Hold the installed providers against the lock file; nothing is run",
		Long: `Hold the installed providers against the lock file. Every byte is read, nothing is run.
Builds for other platforms are named and not looked for.

It exits with 1 where a provider is not what is locked.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" && output != "table" {
				return cli.WrongOutput(output, "table")
			}
			look, err := lookWith(&in)
			if err != nil {
				return err
			}
			if len(look.Locked.Providers)+len(look.Locked.Programs) == 0 {
				return cli.Wrong(fmt.Errorf("there is nothing to verify: no provider is locked in %s; countersign provider lock does that",
					cmp.Or(look.lockPath, "any lock file (--lock, --config)")))
			}
			return verifyAll(cmd.OutOrStdout(), look.Verify(), output)
		},
	}
	in.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func verifyAll(w io.Writer, all []catalog.Verified, output string) error {
	var err error
	if output == "json" {
		err = json.NewEncoder(w).Encode(all)
	} else {
		err = writeVerified(w, all)
	}
	wrong := 0
	for _, v := range all {
		if v.Refused != "" {
			wrong++
		}
	}
	if wrong > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d locked providers would not be run", wrong, len(all)))
	}
	return err
}

func writeVerified(w io.Writer, all []catalog.Verified) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tPLATFORM\tRESULT")
	for _, v := range all {
		result := "is what is locked: " + v.Path
		switch {
		case !v.Here:
			result = "another platform's, not looked for"
		case v.Refused != "":
			result = v.Refused
		}
		fmt.Fprintf(table, "%s\t%s\t%s/%s\t%s\n", v.Name, cmp.Or(v.Version, "-"), v.OS, v.Arch, result)
	}
	return table.Flush()
}
