// Package catalog finds the installed and pinned providers, for the provider commands:
// [Catalog.List] lists them, [Catalog.Verify] checks files against their pins, [Catalog.Lock]
// pins them, and [Catalog.Find] finds one by name. It only runs binaries that are pinned or
// that the operator named for that purpose.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/schema"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/text"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Catalog is where providers are found, and what pins them. [Catalog.Lock] must not run
// concurrently with other methods.
type Catalog struct {
	// Options are used for every process that is started; Dev is ignored. Required.
	Options pluginhost.Options
	// Locked is the lock file's content; never nil.
	Locked *lock.Lock
	// Entries are those of the configuration: their pins, users, limits and variables
	// apply to their providers. Default: none.
	Entries []pluginhost.Entry
	// Named: the configuration names the lock file, so those of packages do not count.
	Named bool
}

// Target is one binary to run.
type Target struct {
	Name    string // of the provider; empty: unknown
	Version string // in the name of its file
	Path    string
	Pin     string // SHA-256 in hex; empty: it is not pinned
	asked   string // version that the provider must report; empty: any
	entry   pluginhost.Entry
}

// Label names it in messages.
func (t Target) Label() string {
	switch {
	case t.Name == "":
		return t.Path
	case t.Version != "":
		return t.Name + "@" + t.Version
	}
	return t.Name
}

// Entry returns the entry that runs it, without settings.
func (t Target) Entry() pluginhost.Entry {
	e := t.entry
	e.Provider = cmp.Or(t.Name, "provider")
	e.Name, e.Version, e.Path, e.SHA256, e.Settings = e.Provider, "", t.Path, t.Pin, nil
	return e
}

// Find returns the binary that a person means: a path (with a / in it), a name that
// is installed, or NAME@VERSION. A name alone is the locked version where there is one. Without a
// file of that version, NAME@VERSION is the file without a version, which must report it.
func (c *Catalog) Find(what string) (Target, error) {
	if strings.ContainsRune(what, filepath.Separator) || strings.Contains(what, "/") {
		return c.file(what)
	}
	if _, _, file := verified.ParseBinaryName(what); file {
		return Target{}, fmt.Errorf("%s is the name of a file: name it by its path, such as ./%s", text.Quote(what), what)
	}
	name, version, at := strings.Cut(what, "@")
	if at && version == "" {
		return Target{}, fmt.Errorf("no version follows the @ of %s: write NAME or NAME@VERSION", text.Quote(what))
	}
	if locked, ok := c.locked(name); ok && version == "" {
		version = locked.FileVersion()
	}
	finder := verified.Finder{Dirs: c.Options.Dirs}
	found, err := finder.FindVersion(name, version)
	if _, missing := errors.AsType[*verified.NotFoundError](err); at && missing {
		return c.plain(finder, name, version, err)
	}
	if err != nil {
		return Target{}, err
	}
	return c.target(found), nil
}

// plain returns the file without a version, which must report this one; absent is the error if
// there is no such file.
func (c *Catalog) plain(finder verified.Finder, name, version string, absent error) (Target, error) {
	found, err := finder.Find(name)
	if _, missing := errors.AsType[*verified.NotFoundError](err); missing {
		return Target{}, absent
	}
	if err != nil {
		return Target{}, err
	}
	t := c.target(found)
	t.asked = version
	return t, nil
}

// file returns a binary by its path. The file name may name the provider.
func (c *Catalog) file(path string) (Target, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Target{}, err
	}
	if err := checkExists(path); err != nil {
		return Target{}, err
	}
	name, version, ok := verified.ParseBinaryName(filepath.Base(path))
	if !ok || !wire.ValidName(name) {
		return Target{Path: path}, nil
	}
	return c.target(verified.Found{Name: name, Version: version, Path: path}), nil
}

func (c *Catalog) target(found verified.Found) Target {
	t := Target{Name: found.Name, Version: found.Version, Path: found.Path}
	for _, entry := range c.Entries {
		if cmp.Or(entry.Provider, entry.Name) == found.Name {
			t.entry = entry
			if found.Version == "" {
				t.Pin = entry.SHA256
			}
			break
		}
	}
	if locked, ok := c.locked(found.Name); ok {
		t.Pin = "" // of another version of it, which is the pinned one
		if locked.FileVersion() == found.Version {
			t.Pin = locked.SHA256
		}
		return t
	}
	_, pin := c.installedPin(found)
	t.Pin = cmp.Or(t.Pin, pin)
	return t
}

// installedPin returns the lock file that a package put beside the binary, and its pin; empty: none.
func (c *Catalog) installedPin(found verified.Found) (path, pin string) {
	if c.Named {
		return "", ""
	}
	path, build, err := lock.InstalledPin(filepath.Dir(found.Path), found.Name)
	if path == "" || err != nil || build.FileVersion() != found.Version {
		return "", "" // an agent reports the error
	}
	return path, build.SHA256
}

// OfPackage returns the lock file that its package put beside the target, if that, and nothing
// else, pins its bytes; else nothing.
func (c *Catalog) OfPackage(t Target) string {
	found := verified.Found{Name: t.Name, Version: t.Version, Path: t.Path}
	if _, locked := c.locked(t.Name); locked || t.entry.SHA256 != "" {
		return ""
	}
	path, pin := c.installedPin(found)
	if sum, err := found.SHA256(); err != nil || sum != pin {
		return ""
	}
	return path
}

func (c *Catalog) locked(name string) (lock.Provider, bool) {
	return c.Locked.Of(name, runtime.GOOS, runtime.GOARCH)
}

// Description is what a provider reported when it was run once.
type Description struct {
	wire.Metadata
	Protocol       int
	Authentication pluginhost.Authentication
	SHA256         string // of what was executed
	Settings       []schema.Setting
}

// Describe runs the target once, without settings, and queries its metadata.
func (c *Catalog) Describe(ctx context.Context, t Target) (Description, error) {
	if err := CheckFile(t.Path); err != nil {
		return Description{}, err
	}
	opts := c.Options
	opts.Dev = true // the caller has decided that it may run
	probe, err := pluginhost.NewProbe(opts, t.Entry())
	if err != nil {
		return Description{}, bare(err)
	}
	defer probe.Close()
	if err := probe.Launch(); err != nil {
		return Description{}, err
	}
	if err := probe.Connect(ctx); err != nil {
		return Description{}, err
	}
	m, err := probe.Metadata(ctx)
	if err != nil {
		return Description{}, err
	}
	settings, err := schema.Parse(m.SettingsSchema)
	s := probe.Status()
	return Description{m, s.Protocol, s.Authentication, s.SHA256, settings}, errors.Join(t.Check(m), err)
}

// CheckFile returns why the file at path cannot run here, without running it. An error names the
// path.
func CheckFile(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := checkExists(path); err != nil {
		return err
	}
	if err := verified.CheckFile(path); err != nil {
		return err
	}
	return verified.CheckProgram(path)
}

func checkExists(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: build the provider first, or correct the path", path)
	}
	return err
}

// Named adds the path of a provider's file to an error, unless the error has it.
func Named(path string, err error) error {
	if _, ok := errors.AsType[*verified.RefusedError](err); ok {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// bare removes the name of the entry, which exists only for this call.
func bare(err error) error { return cmp.Or(errors.Unwrap(err), err) }

// Check compares what a provider reports with the name of its file.
func (t Target) Check(m wire.Metadata) error {
	switch {
	case t.Name != "" && m.Name != t.Name:
		return fmt.Errorf("its name is %q, but its file is named %q: rename the file to %s", m.Name, t.Name, verified.BinaryName(m.Name, t.Version))
	case t.Version != "" && m.Version != t.Version:
		return fmt.Errorf("its version is %q, but its file is named %q: rename the file to %s", m.Version, t.Version, verified.BinaryName(t.Name, m.Version))
	case t.asked != "" && m.Version != t.asked:
		return fmt.Errorf("its version is %q, not %q, which is not installed; to use this file, name its path", m.Version, t.asked)
	}
	return nil
}
