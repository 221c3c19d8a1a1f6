// Package testprogram builds the programs that tests start, by [Build], and says how the
// tests themselves were built, by [Flags].
package testprogram

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime/debug"
)

// Build compiles the package pkg of the folder dir into the file to, by [Flags], and as
// small as a release, since each start hashes the file. Where to is a folder, the programs
// in it bear the names of their packages.
func Build(to, dir, pkg string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append(append([]string{"build"}, Flags()...), "-ldflags", "-s -w", "-o", to, pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, dir, err, out)
	}
	return nil
}

// Flags are those that this test's own binary was built with. Whoever starts the go command
// with other ones has all dependencies compiled once more, which takes minutes; and by
// -race a program is watched as its test is.
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
