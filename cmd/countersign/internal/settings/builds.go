package settings

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
)

// pin applies the lock file's pins for this platform, if there is a lock file, and what
// packages have pinned, if the configuration names no lock file.
func (f *Flags) pin(c *config.Config) error {
	f.locksSeen = map[string][sha256.Size]byte{}
	path, wanted := c.LockPath()
	if path == "" {
		return f.pinInstalled(c)
	}
	f.locksSeen[path] = contentOf(readFile(path))
	locked, err := wiring.Locked(path, wanted)
	if err == nil {
		err = c.Pin(path, locked)
	}
	if err != nil || wanted {
		return err
	}
	return f.pinInstalled(c)
}

// pinInstalled applies what packages have pinned.
func (f *Flags) pinInstalled(c *config.Config) error {
	return wiring.PinInstalled(c, wiring.SearchDirs(f.Env, c.ProviderDirs), func(path string) { f.locksSeen[path] = contentOf(readFile(path)) })
}

// OvertakenPins returns a warning for each pin that an upgrade of a package makes wrong.
func OvertakenPins(env environ.Vars, c *config.Config) []string {
	return wiring.OvertakenPins(c, wiring.SearchDirs(env, c.ProviderDirs))
}

// useBuilds applies --dev-provider and --insecure-attach.
func (f *Flags) useBuilds(c *config.Config) error {
	var errs []error
	use := func(flag string, values []string, build func(p *config.Provider, path string)) {
		for _, value := range values {
			name, path, err := ParseBuild(value)
			if err == nil {
				err = c.UseBuild(name, func(p *config.Provider) { build(p, path) })
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			}
		}
	}
	f.buildsSeen = f.stamps()
	use("--dev-provider", f.DevBuilds, func(p *config.Provider, path string) { p.Path = path })
	use("--insecure-attach", f.attached, func(p *config.Provider, path string) { p.Attach = path })
	return errors.Join(errs...)
}

// devPaths returns the files of --dev-provider.
func (f *Flags) devPaths() (paths []string) {
	for _, value := range f.DevBuilds {
		if _, path, err := ParseBuild(value); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// stamps returns the time and size of each build; a compiler may have removed one for a moment.
func (f *Flags) stamps() map[string]string {
	stamps := map[string]string{}
	for _, path := range f.devPaths() {
		if info, err := os.Stat(path); err == nil {
			stamps[path] = fmt.Sprint(info.ModTime().UnixNano(), info.Size())
		}
	}
	return stamps
}

// rebuilt reports whether there is another build than the one that was last read.
func (f *Flags) rebuilt() bool {
	for path, stamp := range f.stamps() {
		if stamp != f.buildsSeen[path] {
			return true
		}
	}
	return false
}

// ParseBuild reads NAME=PATH.
func ParseBuild(value string) (name, path string, err error) {
	name, path, ok := strings.Cut(value, "=")
	if !ok || name == "" || path == "" {
		return "", "", fmt.Errorf("%.256q is not NAME=PATH, as in acme=./countersign-provider-acme", value)
	}
	path, err = filepath.Abs(path)
	return name, path, err
}
