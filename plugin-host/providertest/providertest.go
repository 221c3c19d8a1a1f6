// Package providertest (for Countersign's own programs) holds a compiled provider, in whatever
// language it is written, against the suite of package conformance, under the real host: [Run] is
// what `countersign provider test` does. It adds the checks that need a process: it is stopped,
// killed and left alone, and what it writes and holds is looked at.
package providertest

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/reference"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Target is a provider to be tested.
type Target struct {
	// Path is the binary, a file countersign-provider-<name>. Required.
	Path string
	// Kit is what the author gives. Default: a provider without settings that signs
	// for every caller.
	Kit conformance.Kit
	// Env are variables for its process, as in a provider's entry of a configuration.
	Env map[string]string
	// Levels to be run. Default: all.
	Levels []conformance.Level
	// Only are the IDs of the checks to be run. Default: all.
	Only []string
	// TempDir is where private folders are made. Default: the system's.
	TempDir string
}

// prefix and suffix are those of a provider's file name.
const (
	prefix = "countersign-provider-"
	suffix = ".exe"
)

// name returns the provider's name, from that of its file.
func (t Target) name() (string, error) {
	file := strings.TrimSuffix(filepath.Base(t.Path), suffix)
	name, ok := strings.CutPrefix(file, prefix)
	if !ok || !wire.ValidName(name) {
		return "", fmt.Errorf("the file is called %.256q: a provider's binary is called %s<name>, the name of a-z, 0-9 and -", filepath.Base(t.Path), prefix)
	}
	return name, nil
}

func (t Target) wants(c conformance.Check) bool {
	return (len(t.Levels) == 0 || slices.Contains(t.Levels, c.Level)) && (len(t.Only) == 0 || slices.Contains(t.Only, c.ID))
}

// Checks returns every check there is, for who prints them.
func Checks() []conformance.Check {
	return slices.Concat(conformance.Checks(), processChecks(nil))
}

// Run runs the checks on the provider, reports each result as it comes, and returns all of
// them. An error means that nothing could be run. It ends all that it started.
func Run(ctx context.Context, target Target, each func(conformance.Result)) (*conformance.Report, error) {
	r, err := newRig(target)
	if err != nil {
		return nil, err
	}
	session := conformance.NewSession(target.Kit, conformance.Subject{Form: "process", Open: r.open, Log: r.logged})
	defer session.Close()
	if err := session.Resolve(ctx); err != nil {
		return nil, err
	}
	r.entry.Settings = session.Kit.Settings
	report := &conformance.Report{Provider: filepath.Base(target.Path)}
	for _, check := range slices.Concat(conformance.Checks(), processChecks(r)) {
		if !target.wants(check) {
			continue
		}
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		result := session.Do(ctx, check)
		report.Add(result)
		each(result)
	}
	return report, nil
}

// newRig looks at the binary; one that the host would not run is an error.
func newRig(target Target) (*rig, error) {
	name, err := target.name()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(target.Path)
	if err != nil {
		return nil, err
	}
	r := &rig{path: path, seen: &seen{}, withheld: reference.Variables(target.Kit.Settings)}
	r.entry = pluginhost.Entry{Name: name, Settings: target.Kit.Settings, Env: target.Env}
	r.opts = pluginhost.Options{
		Dirs: []string{filepath.Dir(path)}, Dev: true, RuntimeDir: target.TempDir, Log: r.seen.logger(), Stderr: io.MultiWriter(&r.seen.stderr, &r.seen.tail),
		StartTimeout: time.Duration(target.Kit.CallTimeout),
	}
	r.schema = sync.OnceValues(r.askSchema)
	probe, err := pluginhost.NewProbe(r.opts, r.entry)
	if err != nil {
		return nil, err
	}
	probe.Close()
	return r, nil
}
