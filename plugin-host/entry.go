package pluginhost

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/verified"
)

// Entry is one provider of a configuration.
type Entry struct {
	// Name is what the configuration and the log call it. Required.
	Name string
	// Provider is the <name> of countersign-provider-<name>. Default: Name.
	Provider string
	// Version chooses countersign-provider-<name>@<version>. Default: the file without
	// a version.
	Version string
	// Path is a file that was just built, to run in place of what is installed; it
	// needs no pin, and Version is not looked at. Default: none.
	Path string
	// Attach is the socket of `countersign provider debug`, whose provider is used in place of a process
	// of one's own: neither pinned nor confined. Default: none.
	Attach string
	// SHA256 of the binary, hex; without it the start is refused unless
	// [Options.Dev], or Path.
	SHA256 string
	// Settings are the provider's own; they are sent again after each start.
	Settings map[string]any
	// Env are variables for its process, beside those that every provider gets.
	Env map[string]string
	// User is whom its process runs as, a name or a number: a user of its own, whom
	// no socket of secrets answers. It needs a host that is root. Default: the host's.
	User string
	// Limits bound what it may take of the machine; what cannot be applied here is
	// logged. Default: none.
	Limits Limits
}

// Limits bound what a provider may take of the machine.
type Limits = confine.Limits

// The least that [Limits] may be.
const (
	MinMemory      = confine.MinMemory
	MinDescriptors = confine.MinDescriptors
	MinProcesses   = confine.MinProcesses
	MinCPU         = confine.MinCPU
)

// EntryError says that an entry cannot be run as it is: whoever wrote it mends it.
type EntryError struct {
	Name string // of the entry
	Err  error
}

// Error implements error.
func (e *EntryError) Error() string { return fmt.Sprintf("provider %q: %v", e.Name, e.Err) }

// Unwrap implements [errors.Unwrap].
func (e *EntryError) Unwrap() error { return e.Err }

// withDefaults returns the entry with its defaults, or what is wrong with it.
func (e Entry) withDefaults(dev bool) (Entry, error) {
	if e.Provider == "" {
		e.Provider = e.Name
	}
	if err := e.check(dev); err != nil {
		return e, &EntryError{e.Name, err}
	}
	return e, nil
}

func (e Entry) check(dev bool) error {
	if err := errors.Join(verified.CheckName(e.Provider), verified.CheckVersion(e.Version), process.CheckEnvironment(e.Env), e.Limits.Check()); err != nil {
		return err
	}
	if e.SHA256 == "" && e.Path == "" && e.Attach == "" && !dev {
		return errors.New("it has no pin: lock it (`countersign provider lock`), or set sha256 in its entry to the SHA-256 of its " +
			"binary (`countersign provider list` prints it), or say --dev to start whatever is there")
	}
	if sum, err := hex.DecodeString(e.SHA256); err != nil || len(sum) != 0 && len(sum) != 32 {
		return fmt.Errorf("sha256 is %s; use the 64 hex digits of the binary's SHA-256", text.Quote(e.SHA256))
	}
	return nil
}
