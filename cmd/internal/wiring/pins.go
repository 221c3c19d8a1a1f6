package wiring

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// Locked returns the lock file's pins for this platform, by the provider's name. A missing
// file is an error only if it is wanted.
func Locked(path string, wanted bool) (map[string]config.Build, error) {
	l, err := lock.Read(path)
	if errors.Is(err, fs.ErrNotExist) && !wanted {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pins(l), nil
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
		found, err := finder.Find(name)
		if err != nil {
			continue // reported when it is verified
		}
		folder := filepath.Dir(found.Path)
		path := lock.InstalledPath(folder)
		reads(path)
		l, err := lock.Installed(folder)
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		if build, ok := pins(l)[name]; ok && build.Version == "" {
			err = c.Pin(path, map[string]config.Build{name: build})
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
		folder := filepath.Dir(found.Path)
		l, err := lock.Installed(folder)
		if path := lock.InstalledPath(folder); err == nil && l != nil && by != path && pins(l)[name].SHA256 != "" {
			warnings = append(warnings, fmt.Sprintf("%s pins provider %s, which %s pins and an upgrade of its package replaces: the program does not start then; remove the first pin", by, name, path))
		}
	}
	return warnings
}

// addresses converts the address settings of a lock file; nil, which is unknown, stays nil.
func addresses(locked []lock.AddressSetting) address.Settings {
	if locked == nil {
		return nil
	}
	out := address.Settings{}
	for _, one := range locked {
		out = append(out, address.Setting{Name: one.Setting, Form: address.Form(one.Form), Pattern: one.Pattern})
	}
	return out
}

func pins(l *lock.Lock) map[string]config.Build {
	locked := map[string]config.Build{}
	for _, p := range l.Providers {
		if p.OS == runtime.GOOS && p.Arch == runtime.GOARCH {
			locked[p.Name] = config.Build{Version: p.FileVersion(), SHA256: p.SHA256, Secrets: p.SecretSettings, Addresses: addresses(p.AddressSettings)}
		}
	}
	return locked
}
