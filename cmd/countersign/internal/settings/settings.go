// Package settings reads the configuration that an operator has given to a command:
// [Flags.Read] lays flags over the environment over the configuration file. Every command
// that needs the configuration has a [Flags] of its own; one goroutine uses it at a time.
package settings

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// maxConfigFile leaves room for 100,000 secrets.
const maxConfigFile = 16 << 20

// Flags are a command's flags, over the environment and the configuration file. It can be
// read any number of times.
type Flags struct {
	// Env is the program's environment.
	Env environ.Vars
	// Installed is the configuration file without --config, COUNTERSIGN_CONFIG and any other flag of a
	// setting, if it is there. Default: none.
	Installed string
	// Proxy is the command after "--". Default: none.
	Proxy []string
	// DevBuilds are the values of --dev-provider, NAME=PATH each.
	DevBuilds []string

	flags    *pflag.FlagSet
	warnings func() io.Writer
	file     string
	sets     []string
	seen     [sha256.Size]byte // the file's content when it was last read

	locksSeen  map[string][sha256.Size]byte // the content of the lock files, by path, likewise
	buildsSeen map[string]string            // of --dev-provider, when they were last read
	// probe looks for another SDS server on the socket. It runs once, at the first read:
	// the agent binds one socket or the other for as long as it runs.
	probe func() (*config.Foreign, error)

	attached []string // --insecure-attach
}

// InstalledFile is where the packages and images have the configuration, for [Flags.Installed].
const InstalledFile = "/etc/countersign/countersign.yaml"

// FileName returns the configuration file of the flag, else of the variable, else the installed one;
// empty: none.
func (f *Flags) FileName() string {
	return cmp.Or(f.file, f.Env.Get("COUNTERSIGN_CONFIG"), f.installed())
}

func (f *Flags) installed() string {
	if f.Installed == "" || len(f.sets) > 0 {
		return ""
	}
	for _, setting := range config.Settings() {
		if given := f.flags.Lookup(setting.Flag); given != nil && given.Changed {
			return ""
		}
	}
	if _, err := os.Stat(f.Installed); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return f.Installed // one that cannot be read is an error when it is
}

// Read lays flags over the environment over the file, and validates the result. Along with
// an error it returns what could be understood.
func (f *Flags) Read() (config.Config, error) {
	in, err := f.input()
	if err != nil {
		return config.Config{}, err
	}
	c, warnings, err := config.Read(in)
	for _, w := range warnings {
		cli.Complain(f.warnings(), slog.LevelWarn, "countersign: warning: "+w)
	}
	if err := errors.Join(err, f.useBuilds(&c)); err != nil {
		return c, err
	}
	if err := f.pin(&c); err != nil {
		return c, err
	}
	if f.probe == nil {
		f.probe = sync.OnceValues(func() (*config.Foreign, error) {
			if !c.Socket.Enabled {
				return nil, nil
			}
			return foreignAt(c.Socket)
		})
	}
	foreign, err := f.probe()
	if err != nil {
		return c, err
	}
	c.LeaveSocketTo(foreign)
	// A missing provider comes first: the other errors may follow from it.
	missing := findMissing(f.Env, &c)
	err = c.Complete()
	for _, w := range c.Warnings() {
		cli.Complain(f.warnings(), slog.LevelWarn, "countersign: warning: "+w)
	}
	return c, errors.Join(missingError(c, missing), err, checkIstiodRoot(c))
}

// ReadPartly lays flags over the environment over the file, and no more. The result need
// not be a configuration that an agent can start with.
func (f *Flags) ReadPartly() (config.Config, error) {
	in, err := f.input()
	if err != nil {
		return config.Config{}, err
	}
	c, _, err := config.Read(in)
	return c, err
}

// Watched returns the files that the configuration was read from, and the builds of
// --dev-provider: their author compiles them again.
func (f *Flags) Watched() []string {
	files := append(slices.Sorted(maps.Keys(f.locksSeen)), f.FileName())
	files = append(files, f.devPaths()...)
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// Changed reports whether one of them has changed since the last read.
func (f *Flags) Changed() bool {
	file := f.FileName()
	return f.rebuilt() || file != "" && contentOf(readFile(file)) != f.seen || f.relocked()
}

func (f *Flags) relocked() bool {
	for path, seen := range f.locksSeen {
		if contentOf(readFile(path)) != seen {
			return true
		}
	}
	return false
}

// contentOf identifies the content of a file, or the error of reading it.
func contentOf(content []byte, err error) [sha256.Size]byte {
	if err != nil {
		content = []byte(err.Error())
	}
	return sha256.Sum256(content)
}

// Empty reports whether there is neither a configuration file nor a --set.
func (f *Flags) Empty() bool { return f.FileName() == "" && len(f.sets) == 0 }

// input collects the layers.
func (f *Flags) input() (in config.Input, err error) {
	in = config.Input{Environ: f.Env, FileName: f.FileName(), Command: f.Proxy}
	if in.FileName != "" {
		in.File, err = readFile(in.FileName)
		if f.seen = contentOf(in.File, err); err != nil {
			return in, err
		}
	}
	for _, setting := range config.Settings() {
		if given := f.flags.Lookup(setting.Flag); given != nil && given.Changed {
			in.Flags = append(in.Flags, config.Assignment{Path: setting.Path, Value: given.Value.String(), Origin: "--" + setting.Flag})
		}
	}
	for _, set := range f.sets {
		a, err := config.ParseAssignment(set)
		if err != nil {
			return in, err
		}
		in.Flags = append(in.Flags, a)
	}
	return in, nil
}

func readFile(name string) ([]byte, error) {
	content, err := readAny(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return content, nil
}

// readAny takes a pipe as well, such as that of a shell's process substitution.
func readAny(name string) ([]byte, error) {
	info, err := safefile.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		return safefile.Read(name, maxConfigFile)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return safefile.ReadAll(file, name, maxConfigFile)
}
