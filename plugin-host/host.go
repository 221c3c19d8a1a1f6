// Package pluginhost runs providers: it finds a binary, verifies it, starts and
// supervises it, and what [Open] returns is a [ca.Client] that outlives every one
// of its processes. [InProcess] does the same for a provider without a process.
//
// A provider is a go-plugin binary; the host speaks go-plugin's protocol itself
// (docs/decisions/0003). Who may be whom: proto/provider/PROTOCOL.md.
package pluginhost

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
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
	// Attach is the socket of a [Debugger], whose provider is used in place of a process
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

// Options are the same for all providers of an agent.
type Options struct {
	// Dirs are searched for binaries in this order; see [DefaultDirs]. Required.
	Dirs []string
	// Dev starts binaries that are not pinned. Default: false.
	Dev bool
	// RuntimeDir is where the private folders for sockets are made. Default: the
	// system's folder for temporary files.
	RuntimeDir string
	// ReceiptDir keeps receipts of binaries that only root may write, so that one that
	// has not changed since is not hashed again at the next start. Default: none are kept.
	ReceiptDir string
	// Protocols are the versions offered. Default: version 1.
	Protocols []wire.Protocol
	// Groups lists the processes' groups, and their users. Default: a value of one's own.
	Groups *ProcessGroups
	// OnState is told each change of state, in order. It must not block, and not
	// call the Provider. Default: nobody.
	OnState func(Status)
	// Log gets the providers' own records, too. Default: silent.
	Log *slog.Logger
	// Stderr gets what providers write on standard error as it comes, unbounded and
	// with whatever is in it: for who tests a provider. Default: nobody.
	Stderr io.Writer

	// StartTimeout bounds the way from the start to the metadata. Default: 10 s.
	StartTimeout time.Duration
	// CallTimeout bounds a call whose caller set no deadline, and each Configure.
	// Default: 30 s.
	CallTimeout time.Duration
	// StopTimeout is how long a provider may take to end. Default: 5 s.
	StopTimeout time.Duration
	// HealthInterval is the time between two questions whether a provider is alive;
	// one that misses three is killed. Default: 10 s.
	HealthInterval time.Duration
	// MaxCalls is how many calls are sent to one provider at once. Default: 1,000.
	MaxCalls int
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.StartTimeout, 10 * time.Second}, {&o.CallTimeout, 30 * time.Second},
		{&o.StopTimeout, 5 * time.Second}, {&o.HealthInterval, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.MaxCalls == 0 {
		o.MaxCalls = 1000
	}
	if o.RuntimeDir == "" {
		o.RuntimeDir = os.TempDir()
	}
	if o.Protocols == nil {
		o.Protocols = []wire.Protocol{wire.V1()}
	}
	if o.Groups == nil {
		o.Groups = &ProcessGroups{}
	}
	if o.OnState == nil {
		o.OnState = func(Status) {}
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

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
	if err := errors.Join(checkName(e.Provider), checkVersion(e.Version), checkEnvironment(e.Env), e.Limits.Check()); err != nil {
		return err
	}
	if e.SHA256 == "" && e.Path == "" && e.Attach == "" && !dev {
		return errors.New("it has no pin: lock it (`countersign provider lock`), or set sha256 in its entry to the SHA-256 of its " +
			"binary (`countersign provider list` prints it), or say --dev to start whatever is there")
	}
	if sum, err := hex.DecodeString(e.SHA256); err != nil || len(sum) != 0 && len(sum) != 32 {
		return fmt.Errorf("sha256 is %s; use the 64 hex digits of the binary's SHA-256", foreign(e.SHA256))
	}
	return nil
}
