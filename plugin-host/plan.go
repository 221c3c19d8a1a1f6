package pluginhost

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/attach"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Plan is an entry whose program was found and verified; a provider's processes are started from it.
// One that [Provider.Next] returns is not in force yet: its Client waits for Commit.
type Plan struct {
	s        *Provider
	entry    Entry // with its defaults
	settings settings
	path     string // of the binary; empty in process
	sha256   string // of the binary; empty without one
	// launch starts a life. It is called on the supervisor's own thread.
	launch func(number int) (instance, error)
	// use is called before launch, by the caller of Begin or Start: from then on the
	// plan counts as one that was run.
	use func()
	// close releases what launch needs. Running lives continue.
	close func()

	ready  *life     // not in force yet; the goroutine run owns it; nil: none, or none is needed
	plain  sync.Once // the warning of secrets in plain text
	ended  bool      // it is not in force, and will not be; guarded by the gate
	ledger ledger
}

// settings are those of an entry, whose secrets may be references. Resolve reads them all,
// Reread the files among them again. Files are those that they may name, in references or
// for the provider to read.
type settings interface {
	Resolve(ctx context.Context, secret reference.Paths) (reference.Resolved, error)
	Reread(ctx context.Context, secret reference.Paths) (reference.Resolved, error)
	Files(secret reference.Paths) []string
}

// newPlan finds and verifies the binary of an entry.
func newPlan(opts Options, entry Entry) (*Plan, error) {
	entry, err := entry.withDefaults(opts.Dev)
	if err != nil {
		return nil, err
	}
	if entry.Attach != "" {
		return attachPlan(opts, entry)
	}
	path, binary, err := locate(opts, entry)
	if err != nil {
		return nil, exported(fmt.Errorf("provider %q: %w", entry.Name, err))
	}
	hold, missing, err := confine.New(entry.Name, entry.User, confine.Limits(entry.Limits))
	if err != nil {
		_ = binary.Close()
		return nil, &EntryError{entry.Name, err}
	}
	program := process.Program{Name: entry.Name, Binary: binary, Env: entry.Env, Hold: hold, Pair: selfsigned.Ahead()}
	warn := sync.OnceFunc(func() { // a reload that starts nothing makes a plan, too
		if len(missing) > 0 {
			opts.Log.Warn(process.LimitsMissing, "provider", entry.Name, "limits", missing.String())
		}
		if entry.SHA256 == "" {
			opts.Log.Warn("starting provider without a pin", "allowed_by", entry.unpinnedBy(), "provider", entry.Name, "path", path, "sha256", binary.SHA256)
		}
	})
	made := planOf(opts, entry, func(number int) (instance, error) {
		warn()
		p, err := process.Start(opts.process(), program, number)
		if err != nil {
			return nil, err // not p, which would be a non-nil instance
		}
		return p, nil
	})
	made.path, made.sha256 = path, binary.SHA256
	made.use = func() {
		if uid, own := hold.User(); own {
			opts.Groups.running.AddUser(uid)
		}
	}
	made.close = func() { _ = binary.Close() }
	return made, nil
}

func planOf(opts Options, entry Entry, launch func(number int) (instance, error)) *Plan {
	return &Plan{
		entry: entry, launch: launch, use: func() {}, close: func() {},
		settings: reference.NewResolver(reference.Options{LookupEnv: opts.LookupEnv, CommandEnv: opts.CommandEnv}, entry.Settings),
	}
}

// attachPlan is the plan of a provider that its author starts.
func attachPlan(opts Options, entry Entry) (*Plan, error) {
	if err := attach.Check(entry.Attach); err != nil {
		return nil, exported(fmt.Errorf("provider %q: %w", entry.Name, err))
	}
	warn := sync.OnceFunc(func() {
		opts.Log.Warn("attaching a provider in a debugger, neither pinned nor confined", "provider", entry.Name, "socket", entry.Attach)
	})
	made := planOf(opts, entry, func(int) (instance, error) {
		warn()
		return attach.New(entry.Attach, opts.CallTimeout), nil
	})
	made.path = entry.Attach
	return made, nil
}

// residentPlan is the plan of a provider without a process.
func residentPlan(opts Options, entry Entry, make func() wire.Provider) (*Plan, error) {
	entry, err := entry.withDefaults(true)
	if err != nil {
		return nil, err
	}
	return planOf(opts, entry, func(int) (instance, error) { return newResident(make()), nil }), nil
}

// locate finds the binary of an entry and verifies it; path is as it was found.
func locate(opts Options, entry Entry) (path string, binary *verified.Binary, err error) {
	if path = entry.Path; path == "" {
		found, err := verified.Finder{Dirs: opts.Dirs}.FindVersion(entry.Provider, entry.Version)
		if err != nil {
			return "", nil, err
		}
		path = found.Path
	}
	binary, err = verified.Open(path, entry.SHA256, verified.Receipts{Folder: opts.ReceiptDir, Log: opts.Log})
	return path, binary, err
}

// unpinnedBy returns what allows an entry without a pin to start.
func (e Entry) unpinnedBy() string {
	if e.Path != "" {
		return "path"
	}
	return "--dev"
}

// files returns files that the settings may name, the address too.
func (p *Plan) files(secret reference.Paths) []string {
	files := p.settings.Files(secret)
	if filepath.IsAbs(p.entry.Address) {
		files = append(files, p.entry.Address)
	}
	return files
}

// inherit takes over the settings that a life of the other plan took, if both plans have the
// same configuration: a new binary is not to fail because of a secret that is wrong just now.
func (p *Plan) inherit(other *Plan) {
	if p.entry.Address == other.entry.Address && reflect.DeepEqual(p.entry.Settings, other.entry.Settings) {
		p.ledger.is.good = other.ledger.read().good
	}
}

// same reports whether lives of both plans are the same.
func (p *Plan) same(other *Plan) bool {
	return p.path == other.path && p.sha256 == other.sha256 && reflect.DeepEqual(p.entry, other.entry)
}

// status returns the status before anything is started.
func (p *Plan) status() Status {
	return Status{Name: p.entry.Name, Provider: p.entry.Provider, Path: p.path, SHA256: p.sha256, State: Resolved}
}
