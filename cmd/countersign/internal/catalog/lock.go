package catalog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/host/verified"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// Lock runs the target once to ask what it is, and pins the bytes that were executed. If the target
// has a pin, no other bytes run.
// It returns what is locked now, and what was before, if anything.
func (c *Catalog) Lock(ctx context.Context, t Target) (now, before lock.Provider, err error) {
	if t.Name == "" {
		return now, before, fmt.Errorf("%s is not named like a provider: name the file countersign-provider-NAME, or countersign-provider-NAME@VERSION", t.Path)
	}
	d, err := c.Describe(ctx, t)
	if err != nil {
		return now, before, fmt.Errorf("%s is not locked: %w", t.Label(), Named(t.Path, err))
	}
	before, _ = c.locked(t.Name)
	now = lock.Provider{
		Name: d.Name, Version: d.Version, Protocol: d.Protocol, OS: runtime.GOOS, Arch: runtime.GOARCH,
		File: verified.BinaryName(t.Name, t.Version), SHA256: d.SHA256,
	}
	// A schema that cannot be read for secrets leaves them unknown.
	if secrets, err := reference.SecretPaths(d.SettingsSchema); err == nil {
		now.SecretSettings = secrets
	}
	now.AddressSettings = addressSettings(d.SettingsSchema)
	c.Locked.Put(now)
	return now, before, nil
}

// Other returns the file without a version of a provider whose locked build has one in its file
// name: the name alone then means the locked one. Empty: there is none.
func (c *Catalog) Other(name string) string {
	locked, ok := c.locked(name)
	if !ok || locked.FileVersion() == "" {
		return ""
	}
	found, _ := verified.Finder{Dirs: c.Options.Dirs}.Find(name)
	return found.Path
}

// addressSettings returns the settings that a schema marks as the CA's address; nil if it cannot be
// read.
func addressSettings(schema string) []lock.AddressSetting {
	settings, err := address.Of(schema)
	if err != nil {
		return nil
	}
	out := []lock.AddressSetting{}
	for _, s := range settings {
		out = append(out, lock.AddressSetting{Setting: s.Name, Form: string(s.Form), Pattern: s.Pattern})
	}
	return out
}

// Program is one of Countersign's programs that is a binary of its own.
type Program struct {
	Name    string // of its file, and in a lock file
	Command string // of countersign, which verifies and runs it
	About   string // what it is
}

// The programs.
var (
	Discovery = Program{"countersign-discovery", "discovery", "the discovery service for many clusters"}
	RA        = Program{"countersign-ra", "ra", "the registration authority for Kubernetes"}

	programs = []Program{Discovery, RA}
)

// IsProgram reports whether one of the programs has that name.
func IsProgram(name string) bool {
	return slices.ContainsFunc(programs, func(p Program) bool { return p.Name == name })
}

// PackagesPin returns how a package's own lock file pins a program: it lies among the providers, and is
// replaced with the program. Without one, the hash is empty.
func PackagesPin(dirs []string, name string) (lock.Program, error) {
	for _, dir := range dirs {
		packages, err := lock.Installed(dir)
		if err != nil {
			return lock.Program{}, err
		}
		for _, of := range packages {
			if p, ok := of.Lock.Program(name, runtime.GOOS, runtime.GOARCH); ok {
				return p, nil
			}
		}
	}
	return lock.Program{}, nil
}

// pinned returns what pins a program here.
func (c *Catalog) pinned(name string) (lock.Program, bool) {
	p, ok := c.Locked.Program(name, runtime.GOOS, runtime.GOARCH)
	if !ok && !c.Named {
		p, _ = PackagesPin(c.Options.Dirs, name) // an error is reported by who runs it
	}
	return p, p.SHA256 != ""
}

// LockProgram pins the installed program of that name by its bytes; it is not run.
func (c *Catalog) LockProgram(name string) (now, before lock.Program, err error) {
	found, err := verified.Finder{Dirs: c.Options.Dirs}.FindProgram(name)
	if err != nil {
		return now, before, err
	}
	sum, err := found.SHA256()
	if err != nil {
		return now, before, err
	}
	before, _ = c.Locked.Program(name, runtime.GOOS, runtime.GOARCH)
	now = lock.Program{Name: name, OS: runtime.GOOS, Arch: runtime.GOARCH, SHA256: sum}
	c.Locked.PutProgram(now)
	return now, before, nil
}

// Verified is a locked provider or program held against its file.
type Verified struct {
	lock.Provider
	Program bool   `json:"program,omitempty"` // not a provider; of Provider it has no version, protocol and secrets
	Path    string `json:"path,omitempty"`    // empty: no file is there, or it is another platform's
	Here    bool   `json:"here"`              // it is for this platform
	Refused string `json:"refused,omitempty"`
}

// Verify reads the file of each provider and program that is locked, and runs none.
func (c *Catalog) Verify() []Verified {
	all := []Verified{}
	ofPackages, unread := c.ofPackages()
	all = append(all, unread...)
	for _, p := range append(slices.Clip(c.Locked.Providers), ofPackages...) {
		v := Verified{Provider: p, Here: p.OS == runtime.GOOS && p.Arch == runtime.GOARCH}
		if v.Here {
			if err := c.verify(&v); err != nil {
				v.Refused = err.Error()
			}
		}
		all = append(all, v)
	}
	for _, p := range append(slices.Clip(c.Locked.Programs), c.programsOfPackages()...) {
		all = append(all, c.verifyProgram(p))
	}
	return all
}

// ofPackages returns what the lock files of packages pin, and nothing else does, and the lock files
// that cannot be read. Of a provider that is in several folders, the first one's runs.
func (c *Catalog) ofPackages() (all []lock.Provider, unread []Verified) {
	if c.Named {
		return nil, nil
	}
	for _, dir := range c.Options.Dirs {
		packages, err := lock.Installed(dir)
		if broken, ok := errors.AsType[*lock.Error](err); ok {
			unread = append(unread, Verified{Provider: lock.Provider{Name: filepath.Base(broken.Path), OS: runtime.GOOS, Arch: runtime.GOARCH}, Path: broken.Path, Here: true, Refused: err.Error()})
		}
		for _, of := range packages {
			for _, p := range of.Lock.Providers {
				_, locked := c.locked(p.Name)
				same := func(o lock.Provider) bool { return o.Name == p.Name && o.OS == p.OS && o.Arch == p.Arch }
				if !locked && !slices.ContainsFunc(all, same) {
					all = append(all, p)
				}
			}
		}
	}
	return all, unread
}

func (c *Catalog) programsOfPackages() (all []lock.Program) {
	for _, program := range programs {
		_, locked := c.Locked.Program(program.Name, runtime.GOOS, runtime.GOARCH)
		if p, pinned := c.pinned(program.Name); pinned && !locked {
			all = append(all, p)
		}
	}
	return all
}

func (c *Catalog) verifyProgram(p lock.Program) Verified {
	v := Verified{Program: true, Provider: lock.Provider{Name: p.Name, OS: p.OS, Arch: p.Arch, File: p.Name, SHA256: p.SHA256}}
	if v.Here = p.OS == runtime.GOOS && p.Arch == runtime.GOARCH; v.Here {
		found, err := verified.Finder{Dirs: c.Options.Dirs}.FindProgram(p.Name)
		if err == nil {
			err = found.Verify(p.SHA256)
		}
		if v.Path = found.Path; err != nil {
			v.Refused = err.Error()
		}
	}
	return v
}

func (c *Catalog) verify(v *Verified) error {
	found, err := verified.Finder{Dirs: c.Options.Dirs}.FindVersion(v.Name, v.FileVersion())
	v.Path = found.Path
	if err != nil {
		return err
	}
	opts := c.Options
	opts.ReceiptDir = "" // every byte is read
	probe, err := pluginhost.NewProbe(opts, pluginhost.Entry{Name: v.Name, Path: found.Path, SHA256: v.SHA256})
	if err != nil {
		return bare(err)
	}
	probe.Close()
	return nil
}
