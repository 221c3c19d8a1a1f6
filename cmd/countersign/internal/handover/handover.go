// Package handover implements "countersign discovery" and "countersign ra", which verify a
// program that is a binary of its own and replace this process with it. main adds a [Command]
// for each.
package handover

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// command is a program with the command's own flags.
type command struct {
	catalog.Program
	env          environ.Vars
	dirs         []string
	lock, sha256 string
	dev          bool
}

const help = `Find the program PROGRAM, verify it and run it in place of this process.

It is a separate binary, to keep the agent small. It is searched for where providers
are: --provider-dir, COUNTERSIGN_PROVIDER_PATH, the folder of this program,
$XDG_DATA_HOME/countersign/providers, lib/countersign/providers beside the folder of this
program, /usr/lib/countersign/providers. Its owner and mode are checked, and its SHA-256: against
--sha256, or against the lock file, where "countersign provider lock --lock FILE PROGRAM"
pins it, or, with neither, against the lock file that a package installed with it.

Put the flags of this command first. Everything from the first word that is not a flag
is passed to the program: countersign COMMAND --lock FILE serve --config FILE.
"countersign COMMAND --lock FILE help" shows its commands. Its exit code is returned.`

// Command returns the command that runs a program.
func Command(env environ.Vars, of catalog.Program) *cobra.Command {
	d := command{Program: of, env: env}
	cmd := &cobra.Command{
		Use: of.Command + " [flags] COMMAND [ARG…]", Short: fmt.Sprintf("Verify and run %s, %s", of.Name, of.About),
		Long: strings.NewReplacer("PROGRAM", of.Name, "COMMAND", of.Command).Replace(help),
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd.ErrOrStderr(), args) },
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringSliceVar(&d.dirs, "provider-dir", splitList(env.Get("COUNTERSIGN_PROVIDER_DIR")), "`folders` to search first (repeatable)")
	cmd.Flags().StringVar(&d.lock, "lock", env.Get("COUNTERSIGN_LOCK"), "lock `file` that pins the program")
	cmd.Flags().StringVar(&d.sha256, "sha256", "", "SHA-256 of the program, in hex, instead of the lock file's")
	cmd.Flags().BoolVar(&d.dev, "dev", isTrue(env.Get("COUNTERSIGN_DEV")), "allow the program without a pin")
	return cmd
}

// sha256Hex allows capitals, too.
var sha256Hex = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
})

// splitList splits the list of an environment variable.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func isTrue(text string) bool {
	on, err := strconv.ParseBool(text)
	return err == nil && on
}

func (d command) run(stderr io.Writer, args []string) error {
	pin, err := d.pin()
	if err != nil {
		return cli.Wrong(err)
	}
	found, err := verified.Finder{Dirs: wiring.SearchDirs(d.env, d.dirs)}.FindProgram(d.Name)
	if err != nil {
		return cli.Wrong(err)
	}
	log := cli.NewLog(stderr, "text", slog.LevelInfo)
	binary, err := verified.Open(found.Path, pin, verified.Receipts{Log: log})
	if err != nil {
		return cli.Wrong(err)
	}
	defer func() { _ = binary.Close() }()
	err = binary.Exec(append([]string{found.Path}, args...), d.env, log)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &cli.Error{Code: ended.ExitCode(), Err: ended}
	}
	if err != nil {
		return cli.Wrong(err)
	}
	return nil
}

// pin returns what the program's SHA-256 must be; empty: anything, with --dev.
func (d command) pin() (string, error) {
	switch {
	case d.sha256 != "" && !sha256Hex().MatchString(d.sha256):
		return "", fmt.Errorf("--sha256 is %.256q: must be 64 hexadecimal digits, as \"countersign provider list\" shows", d.sha256)
	case d.sha256 != "":
		return d.sha256, nil
	case d.lock != "":
		return d.locked()
	case d.dev:
		return "", nil
	}
	of, err := catalog.PackagesPin(wiring.SearchDirs(d.env, d.dirs), d.Name)
	if of.SHA256 == "" && err == nil {
		err = fmt.Errorf("%s is not pinned: pass --lock with the lock file that \"countersign provider lock --lock FILE %s\" writes, "+
			"--sha256 (\"countersign provider list\" shows it), or --dev for development", d.Name, d.Name)
	}
	return of.SHA256, err
}

func (d command) locked() (string, error) {
	l, err := lock.Read(d.lock)
	if err != nil {
		return "", err
	}
	p, ok := l.Program(d.Name, runtime.GOOS, runtime.GOARCH)
	if !ok && !d.dev {
		return "", fmt.Errorf("lock file %s has no %s for %s/%s: run \"countersign provider lock --lock %s %s\"", d.lock,
			d.Name, runtime.GOOS, runtime.GOARCH, d.lock, d.Name)
	}
	return p.SHA256, nil
}
