// Package discovery holds the command that verifies and runs the program
// countersign-discovery: [Command].
package discovery

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/catalog"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/plugin-host/internal/verified"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// discovery is what the command's own flags say.
type discovery struct {
	dirs         []string
	lock, sha256 string
	dev          bool
}

// Command makes `discovery`.
func Command() *cobra.Command {
	var d discovery
	cmd := &cobra.Command{
		Use: "discovery [flags] COMMAND [ARG…]", Short: "Run countersign-discovery, the secret service for many clusters, when it is verified",
		Long: `Find the program countersign-discovery, verify it and run it in place of this one.

It is a binary of its own, so that the agent does not grow. It is looked for where
providers are: --provider-dir, COUNTERSIGN_PROVIDER_PATH, the folder of this program,
$XDG_DATA_HOME/countersign/providers, /usr/lib/countersign/providers. Its owner and mode
are checked, and its SHA-256: by --sha256, or by the lock file, into which
"countersign provider lock --lock FILE countersign-discovery" puts it.

The flags here come first. What begins with the first word that is no flag is the
program's and passed on as it is: countersign discovery --lock FILE serve --config FILE.
"countersign discovery --lock FILE help" shows what it takes. Its exit code is the
exit code.`,
		RunE: func(_ *cobra.Command, args []string) error { return d.run(args) },
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringSliceVar(&d.dirs, "provider-dir", splitList(os.Getenv("COUNTERSIGN_PROVIDER_DIR")), "folders to search before all others (repeatable)")
	cmd.Flags().StringVar(&d.lock, "lock", os.Getenv("COUNTERSIGN_LOCK"), "lock file that pins the program")
	cmd.Flags().StringVar(&d.sha256, "sha256", "", "the only SHA-256 that may run, in hex, in place of the lock file's")
	cmd.Flags().BoolVar(&d.dev, "dev", isTrue(os.Getenv("COUNTERSIGN_DEV")), "run the program without a pin")
	return cmd
}

// sha256Hex is also how people may write it.
var sha256Hex = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// splitList is a list as variables have it.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func isTrue(text string) bool {
	on, err := strconv.ParseBool(text)
	return err == nil && on
}

func (d discovery) run(args []string) error {
	pin, err := d.pin()
	if err != nil {
		return cli.Wrong(err)
	}
	found, err := verified.Finder{Dirs: settings.SearchDirs(d.dirs)}.FindProgram(catalog.Discovery)
	if err != nil {
		return cli.Wrong(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	binary, err := verified.Open(found.Path, pin, verified.Receipts{Log: log})
	if err != nil {
		return cli.Wrong(err)
	}
	defer binary.Close()
	err = binary.Exec(append([]string{found.Path}, args...), os.Environ(), log)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &cli.Error{Code: ended.ExitCode(), Err: ended}
	}
	if err != nil {
		return cli.Wrong(err)
	}
	return nil
}

// pin is what the program's SHA-256 must be; empty: nobody says, and --dev was said.
func (d discovery) pin() (string, error) {
	switch {
	case d.sha256 != "" && !sha256Hex.MatchString(d.sha256):
		return "", fmt.Errorf("--sha256 is %.256q: write 64 hexadecimal digits, as \"countersign provider list\" shows them", d.sha256)
	case d.sha256 != "":
		return d.sha256, nil
	case d.lock != "":
		return d.locked()
	case !d.dev:
		return "", fmt.Errorf("%s has no pin: write --lock and the lock file that \"countersign provider lock --lock FILE %s\" makes, "+
			"or --sha256 (\"countersign provider list\" shows it), or --dev where nobody is to be protected", catalog.Discovery, catalog.Discovery)
	}
	return "", nil
}

func (d discovery) locked() (string, error) {
	l, err := lock.Read(d.lock)
	if err != nil {
		return "", err
	}
	p, ok := l.Program(catalog.Discovery, runtime.GOOS, runtime.GOARCH)
	if !ok && !d.dev {
		return "", fmt.Errorf("the lock file %s has no %s for %s/%s: countersign provider lock --lock %s %s", d.lock,
			catalog.Discovery, runtime.GOOS, runtime.GOARCH, d.lock, catalog.Discovery)
	}
	return p.SHA256, nil
}
