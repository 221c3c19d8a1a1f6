// Package programs hands tests the programs that they start, built from this tree:
// [Path] returns one, [Folder] several in a folder of their own.
//
// `make test` builds each program once and names the folder in COUNTERSIGN_PROGRAMS.
// Without that variable scripts/programs builds them at the first use. Neither function
// may be called before [testing.M.Run]: Go's test cache notes only which variables a test
// reads after it. Both skip the test under -short; see [proctest.NeedsProcess].
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Path returns the path of a program.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	proctest.NeedsProcess(tb)
	path, err := find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func find(name string) (string, error) {
	dir := os.Getenv("COUNTERSIGN_PROGRAMS")
	if dir == "" {
		var err error
		if dir, err = build(); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	return path, err
}

var build = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(root, "scripts", "programs"))
	if slices.Contains(Flags(), "-race=true") {
		cmd.Args = append(cmd.Args, "-race")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the programs: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Root returns the root of the repository.
func Root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.work")); statErr == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.work above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Flags returns the build flags of this test binary: -race, -tags and -trimpath. A go command
// with other flags compiles all dependencies once more.
func Flags() (flags []string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		switch s.Key {
		case "-race", "-tags", "-trimpath":
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}
