package pluginhost

import (
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/attach"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// newPlan finds and verifies the binary of an entry.
func newPlan(opts Options, entry Entry) (*supervise.Plan, error) {
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
	program := process.Program{Name: entry.Name, Binary: binary, Env: entry.Env, Hold: hold}
	warn := sync.OnceFunc(func() { // a reload that starts nothing makes a plan, too
		if len(missing) > 0 {
			opts.Log.Warn(process.LimitsMissing, "provider", entry.Name, "limits", missing.String())
		}
		if entry.SHA256 == "" {
			opts.Log.Warn("starting provider without a pin", "allowed_by", entry.unpinnedBy(), "provider", entry.Name, "path", path, "sha256", binary.SHA256)
		}
	})
	plan := planOf(opts, entry, func(number int) (supervise.Instance, error) {
		warn()
		p, err := process.Start(opts.process(), program, number)
		if err != nil {
			return nil, err // not p, which would be a non-nil Instance
		}
		return p, nil
	})
	plan.Path, plan.SHA256 = path, binary.SHA256
	plan.Use = func() {
		if uid, own := hold.User(); own {
			opts.Groups.running.AddUser(uid)
		}
	}
	plan.Close = func() { _ = binary.Close() }
	return plan, nil
}

func planOf(opts Options, entry Entry, launch func(number int) (supervise.Instance, error)) *supervise.Plan {
	return &supervise.Plan{
		Name: entry.Name, Provider: entry.Provider, Source: entry, Launch: launch, Use: func() {}, Close: func() {},
		Address: entry.Address, Written: [2]any{entry.Settings, entry.Address},
		Settings: reference.NewResolver(reference.Options{LookupEnv: opts.LookupEnv, CommandEnv: opts.CommandEnv}, entry.Settings),
	}
}

// attachPlan is the plan of a provider that its author starts.
func attachPlan(opts Options, entry Entry) (*supervise.Plan, error) {
	if err := attach.Check(entry.Attach); err != nil {
		return nil, exported(fmt.Errorf("provider %q: %w", entry.Name, err))
	}
	warn := sync.OnceFunc(func() {
		opts.Log.Warn("attaching a provider in a debugger, neither pinned nor confined", "provider", entry.Name, "socket", entry.Attach)
	})
	plan := planOf(opts, entry, func(int) (supervise.Instance, error) {
		warn()
		return attach.New(entry.Attach, opts.CallTimeout), nil
	})
	plan.Path = entry.Attach
	return plan, nil
}

// residentPlan is the plan of a provider without a process.
func residentPlan(opts Options, entry Entry, make func() wire.Provider) (*supervise.Plan, error) {
	entry, err := entry.withDefaults(true)
	if err != nil {
		return nil, err
	}
	return planOf(opts, entry, func(int) (supervise.Instance, error) { return supervise.Resident(make()), nil }), nil
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
