package main

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

// settings are where the configuration is read from, as often as it is wanted:
// flags, the environment and a file.
type settings struct {
	flags *pflag.FlagSet
	file  string
	sets  []string
	seen  [sha256.Size]byte // what was in the file when it was last read
	lock  string            // the lock file that was looked for last; empty: none

	lockSeen [sha256.Size]byte
	proxy    []string // the command after --
	// whose is decided at the first read, for as long as the agent runs: it has bound
	// one socket or the other.
	whose func() (*config.Foreign, error)

	devBuilds []string // --dev-provider
	attached  []string // --insecure-attach
}

func (s *settings) addFlags(flags *pflag.FlagSet) {
	s.flags = flags
	flags.StringVar(&s.file, config.ConfigFlag, "", "the configuration, a YAML file")
	flags.StringArrayVar(&s.sets, "set", nil, "any setting by its path, as in providers.file.sha256=… (repeatable)")
	for _, setting := range config.Settings() {
		flags.String(setting.Flag, "", setting.Usage)
		if setting.Path == "dev" || setting.Path == "gateway.enabled" {
			flags.Lookup(setting.Flag).NoOptDefVal = "true"
		}
	}
}

// addBuildFlags adds what is no setting: nobody runs it twice without thinking of it.
func (s *settings) addBuildFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.devBuilds, "dev-provider", nil, "NAME=PATH: run this build of a provider, not pinned, in place of the installed one (repeatable)")
	flags.StringArrayVar(&s.attached, "insecure-attach", nil, "NAME=SOCKET: use a provider that \"countersign provider debug\" has in a debugger, neither pinned nor confined (repeatable)")
}

// fileName returns the file of the flag, else of the variable; empty: none.
func (s *settings) fileName() string { return cmp.Or(s.file, os.Getenv("COUNTERSIGN_CONFIG")) }

// read lays flags over the environment over the file, and checks the result. Where
// it is wrong, what could be understood is returned beside the error.
func (s *settings) read() (config.Config, error) {
	in, err := s.input()
	if err != nil {
		return config.Config{}, err
	}
	c, warnings, err := config.Read(in)
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "countersign: warning:", w)
	}
	if err := errors.Join(err, s.useBuilds(&c)); err != nil {
		return c, err
	}
	if err := s.pin(&c); err != nil {
		return c, err
	}
	if s.whose == nil {
		s.whose = sync.OnceValues(func() (*config.Foreign, error) {
			if !c.Socket.Enabled {
				return nil, nil
			}
			return foreignAt(c.Socket)
		})
	}
	foreign, err := s.whose()
	if err != nil {
		return c, err
	}
	c.LeaveSocketTo(foreign)
	// What is not installed first: of that, nobody can know what it is to be.
	err = c.Complete()
	return c, errors.Join(checkInstalled(c), err, checkIstiodRoot(c))
}

// watched are the files that the configuration was read from.
func (s *settings) watched() []string {
	return slices.DeleteFunc([]string{s.fileName(), s.lock}, func(file string) bool { return file == "" })
}

// changed tells whether one of them has another content than when it was last read.
func (s *settings) changed() bool {
	file := s.fileName()
	return file != "" && contentOf(readFile(file)) != s.seen || s.lock != "" && contentOf(readFile(s.lock)) != s.lockSeen
}

// contentOf stands for what is in a file, or for why it cannot be read.
func contentOf(content []byte, err error) [sha256.Size]byte {
	if err != nil {
		content = []byte(err.Error())
	}
	return sha256.Sum256(content)
}

func (s *settings) input() (in config.Input, err error) {
	in = config.Input{Environ: os.Environ(), FileName: s.fileName(), Command: s.proxy}
	if in.FileName != "" {
		in.File, err = readFile(in.FileName)
		if s.seen = contentOf(in.File, err); err != nil {
			return in, err
		}
	}
	for _, setting := range config.Settings() {
		if f := s.flags.Lookup(setting.Flag); f.Changed {
			in.Flags = append(in.Flags, config.Assignment{Path: setting.Path, Value: f.Value.String(), Origin: "--" + setting.Flag})
		}
	}
	for _, set := range s.sets {
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
