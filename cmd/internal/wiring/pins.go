package wiring

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/lock"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Locked reads a lock file. A missing one pins nothing; it is an error only if it is wanted.
func Locked(path string, wanted bool) (*lock.Lock, error) {
	l, err := lock.Read(path)
	if errors.Is(err, fs.ErrNotExist) && !wanted {
		return &lock.Lock{}, nil
	}
	return l, err
}

// PinInstalled pins the providers without another pin by the lock file that a package installed
// beside them: a hash that changes with the package must not stop an agent. dirs are the folders
// that are searched; reads is called for each lock file before it is read, whether it is there or not.
func PinInstalled(c *config.Config, dirs []string, reads func(path string)) error {
	if c.Dev {
		return nil
	}
	finder := verified.Finder{Dirs: dirs}
	for _, name := range c.Unpinned() {
		if !wire.ValidName(name) {
			continue // the check of the configuration names the setting
		}
		found, err := finder.Find(name)
		if _, missing := errors.AsType[*verified.NotFoundError](err); missing {
			continue // the caller reports what is not installed, with why it is needed
		}
		if err != nil { // without it, the operator would be asked for a hash
			return fmt.Errorf("provider %s: %w", name, err)
		}
		folder := filepath.Dir(found.Path)
		for _, path := range lock.InstalledPaths(folder) {
			reads(path)
		}
		path, build, err := lock.InstalledPin(folder, name)
		if err != nil {
			return err
		}
		if path != "" && build.FileVersion() == "" {
			err = c.Pin(path, &lock.Lock{Providers: []lock.Provider{build}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// OvertakenPins returns a warning for each provider whose hash the operator has pinned although a
// package's lock file beside it does, too: an upgrade of the package replaces the program and that
// lock file, and the operator's pin then refuses the program.
func OvertakenPins(c *config.Config, dirs []string) (warnings []string) {
	finder := verified.Finder{Dirs: dirs}
	for _, entry := range c.Providers {
		name, by := c.PinnedBy(entry)
		found, err := finder.Find(name)
		if by == "" || err != nil {
			continue
		}
		path, _, err := lock.InstalledPin(filepath.Dir(found.Path), name)
		if err == nil && path != "" && path != by {
			warnings = append(warnings, fmt.Sprintf("%s pins provider %s, which %s pins and an upgrade of its package replaces: the program does not start then; remove the first pin", by, name, path))
		}
	}
	return warnings
}
