// Package settings is what an operator has given: [Flags.Read] lays flags over the
// environment over a file.
package settings

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

const maxConfigFile = 1 << 20

// Flags is where the configuration is read from, as often as it is wanted: flags, the
// environment and a file.
type Flags struct {
	// Proxy is the command after "--". Default: none.
	Proxy []string
	// DevBuilds are the values of --dev-provider, NAME=PATH each.
	DevBuilds []string

	flags *pflag.FlagSet
	file  string
	sets  []string
	seen  [sha256.Size]byte // what was in the file when it was last read
	lock  string            // the lock file that was looked for last; empty: none

	lockSeen [sha256.Size]byte
	// whose is decided at the first read, for as long as the agent runs: it has bound
	// one socket or the other.
	whose func() (*config.Foreign, error)

	attached []string // --insecure-attach
}

// AddFlags adds the flags of all settings.
func (g *Flags) AddFlags(flags *pflag.FlagSet) {
	g.flags = flags
	flags.StringVar(&g.file, config.ConfigFlag, "", "the configuration, a YAML file")
	flags.StringArrayVar(&g.sets, "set", nil, "any setting by its path, as in providers.file.sha256=… (repeatable)")
	for _, setting := range config.Settings() {
		flags.String(setting.Flag, "", setting.Usage)
		if setting.Path == "dev" || setting.Path == "gateway.enabled" {
			flags.Lookup(setting.Flag).NoOptDefVal = "true"
		}
	}
}

// AddBuildFlags adds what is no setting: nobody runs it twice without thinking of it.
func (g *Flags) AddBuildFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&g.DevBuilds, "dev-provider", nil, "NAME=PATH: run this build of a provider, not pinned, in place of the installed one (repeatable)")
	flags.StringArrayVar(&g.attached, "insecure-attach", nil, "NAME=SOCKET: use a provider that \"countersign provider debug\" has in a debugger, neither pinned nor confined (repeatable)")
}

// FileName returns the file of the flag, else of the variable; empty: none.
func (g *Flags) FileName() string { return cmp.Or(g.file, os.Getenv("COUNTERSIGN_CONFIG")) }

// Read lays flags over the environment over the file, and checks the result. Where
// it is wrong, what could be understood is returned beside the error.
func (g *Flags) Read() (config.Config, error) {
	in, err := g.Input()
	if err != nil {
		return config.Config{}, err
	}
	c, warnings, err := config.Read(in)
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "countersign: warning:", w)
	}
	if err := errors.Join(err, g.useBuilds(&c)); err != nil {
		return c, err
	}
	if err := g.pin(&c); err != nil {
		return c, err
	}
	if g.whose == nil {
		g.whose = sync.OnceValues(func() (*config.Foreign, error) {
			if !c.Socket.Enabled {
				return nil, nil
			}
			return foreignAt(c.Socket)
		})
	}
	foreign, err := g.whose()
	if err != nil {
		return c, err
	}
	c.LeaveSocketTo(foreign)
	// What is not installed first: of that, nobody can know what it is to be.
	err = c.Complete()
	return c, errors.Join(checkInstalled(c), err, checkIstiodRoot(c))
}

// Watched are the files that the configuration was read from.
func (g *Flags) Watched() []string {
	return slices.DeleteFunc([]string{g.FileName(), g.lock}, func(file string) bool { return file == "" })
}

// Changed tells whether one of them has another content than when it was last read.
func (g *Flags) Changed() bool {
	file := g.FileName()
	return file != "" && contentOf(readFile(file)) != g.seen || g.lock != "" && contentOf(readFile(g.lock)) != g.lockSeen
}

// contentOf stands for what is in a file, or for why it cannot be read.
func contentOf(content []byte, err error) [sha256.Size]byte {
	if err != nil {
		content = []byte(err.Error())
	}
	return sha256.Sum256(content)
}

// Nothing tells whether there is neither a file nor a --set.
func (g *Flags) Nothing() bool { return g.FileName() == "" && len(g.sets) == 0 }

// Input is what was given, not laid over each other yet.
func (g *Flags) Input() (in config.Input, err error) {
	in = config.Input{Environ: os.Environ(), FileName: g.FileName(), Command: g.Proxy}
	if in.FileName != "" {
		in.File, err = readFile(in.FileName)
		if g.seen = contentOf(in.File, err); err != nil {
			return in, err
		}
	}
	for _, setting := range config.Settings() {
		if f := g.flags.Lookup(setting.Flag); f.Changed {
			in.Flags = append(in.Flags, config.Assignment{Path: setting.Path, Value: f.Value.String(), Origin: "--" + setting.Flag})
		}
	}
	for _, set := range g.sets {
		a, err := config.ParseAssignment(set)
		if err != nil {
			return in, err
		}
		in.Flags = append(in.Flags, a)
	}
	return in, nil
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxConfigFile+1))
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(content) > maxConfigFile {
		return nil, fmt.Errorf("--config: %s has more than %d bytes", name, maxConfigFile)
	}
	return content, nil
}
