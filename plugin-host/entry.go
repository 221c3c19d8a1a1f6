package pluginhost

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
)

// Entry describes one provider: how the host finds its program, and what it starts it with. The
// JSON names are those of Countersign's configuration files, which add what the engine needs.
type Entry struct {
	// Name is how the log and secrets refer to it: 1 to 63 of a-z, 0-9 and -. Required.
	Name string `json:"name"`
	// Provider is the name of the binary, without countersign-provider-. Default: Name.
	Provider string `json:"provider"`
	// SHA256 pins the binary, in hex. Default: that of the lock file, if the program reads one;
	// without either, the provider is refused unless dev is set.
	SHA256 string `json:"sha256"`
	// Address is the CA's address, as in CA_ADDR without PROVIDER://: it becomes the setting that
	// the provider declares as its address. Default: what the settings have.
	Address string `json:"address"`
	// Settings are the provider's own, sent after each start; see its documentation. One that its
	// schema marks as secret may be a reference: {file: PATH}, {env: NAME} or {command: [PROGRAM,
	// ARG…]}. The host reads it, 64 KiB in 10 seconds at most, and sends what it reads; when a
	// file's content changes, it configures the provider anew. Default: none.
	Settings map[string]any `json:"settings"`
	// Env are variables for its process, which inherits few of the host's. Default: none.
	Env map[string]string `json:"env"`
	// User runs the process, a name or a number. Use a separate one: no socket serves secrets to
	// it. Only a host that runs as root can change it. Default: the host's own.
	User string `json:"user"`
	// Limits on its resources. The host logs those that this system cannot apply.
	// Default: none.
	Limits Limits `json:"-"`
	// Version selects countersign-provider-<name>@<version>. Default: the file without
	// a version.
	Version string `json:"-"`
	// Path is a binary to run instead of an installed one, such as a fresh build. It
	// needs no pin, and Version is ignored. Default: none.
	Path string `json:"-"`
	// Attach is the socket of `countersign provider debug`. Its provider is used instead
	// of a process of the host, neither pinned nor confined. Default: none.
	Attach string `json:"-"`
}

// Limits bound the resources of a provider. Zero means no limit. The host logs a limit that
// this system cannot apply, and runs the provider without it.
type Limits struct {
	// Memory in bytes, at least [MinMemory]. With cgroup v2 it bounds the provider and its
	// descendants together; otherwise each process, by its private data (RLIMIT_DATA).
	Memory int64
	// Descriptors that a process may have open (RLIMIT_NOFILE), at least [MinDescriptors].
	Descriptors int
	// Processes and threads, at least [MinProcesses]: of the provider with cgroup v2;
	// otherwise of its separate user (RLIMIT_NPROC), and not at all without one.
	Processes int
	// CPU in processors, at least [MinCPU]: 0.5 is half of one. Needs cgroup v2.
	CPU float64
}

// The smallest allowed [Limits].
const (
	MinMemory      = confine.MinMemory      // 64 MiB
	MinDescriptors = confine.MinDescriptors // 32
	MinProcesses   = confine.MinProcesses   // 32
	MinCPU         = confine.MinCPU         // 0.01
)

// EntryError means that an entry is invalid and has to be corrected.
type EntryError struct {
	Name string // of the entry
	Err  error
}

// Error implements error.
func (e *EntryError) Error() string { return fmt.Sprintf("provider %q: %v", e.Name, e.Err) }

// Unwrap implements [errors.Unwrap].
func (e *EntryError) Unwrap() error { return e.Err }

// withDefaults returns the entry with its defaults, or an [EntryError].
func (e Entry) withDefaults(dev bool) (Entry, error) {
	e.Provider = cmp.Or(e.Provider, e.Name)
	if err := e.check(dev); err != nil {
		return e, &EntryError{e.Name, err}
	}
	return e, nil
}

func (e Entry) check(dev bool) error {
	if err := errors.Join(verified.CheckName(e.Provider), verified.CheckVersion(e.Version), process.CheckEnvironment(e.Env), confine.Limits(e.Limits).Check()); err != nil {
		return err
	}
	if e.SHA256 == "" && e.Path == "" && e.Attach == "" && !dev {
		return errors.New("no pin: lock the provider (`countersign provider lock`), set sha256 in its entry " +
			"(`countersign provider list` prints it), or use --dev to start unpinned binaries")
	}
	if sum, err := hex.DecodeString(e.SHA256); err != nil || len(sum) != 0 && len(sum) != 32 {
		return fmt.Errorf("invalid sha256 %s: use the 64 hex digits of the binary's SHA-256", text.Quote(e.SHA256))
	}
	return nil
}
