package supervise

import (
	"context"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/reference"
)

// Settings are those of a plan, whose secrets may be references. Resolve reads them all,
// Reread the files among them again. Files are those that they may name, in references or
// for the provider to read.
type Settings interface {
	Resolve(ctx context.Context, secret reference.Paths) (reference.Resolved, error)
	Reread(ctx context.Context, secret reference.Paths) (reference.Resolved, error)
	Files(secret reference.Paths) []string
}

// Plan is what lives are started from.
type Plan struct {
	Name     string   // of the entry
	Provider string   // the name that the provider must report
	Settings Settings // for each life
	Address  string   // of the CA, for the setting that the provider names; empty: none
	Written  any      // what Settings and Address were made from
	Path     string   // of the binary; empty in process
	SHA256   string   // of the binary; empty without one
	// Source is what the plan was made from. Plans of equal Source, Path and SHA256 are
	// the same.
	Source any
	// Launch starts a life. It is called on the supervisor's own thread.
	Launch func(number int) (Instance, error)
	// Use is called before Launch, by the caller of Begin, Start or Reload: from then on the
	// plan counts as one that was run.
	Use func()
	// Close releases what Launch needs. Running lives continue.
	Close func()

	plain  sync.Once // the warning of secrets in plain text
	ended  bool      // it is not in force, and will not be; guarded by the gate
	ledger ledger
}

// files returns files that the settings may name, the address too.
func (p *Plan) files(secret reference.Paths) []string {
	files := p.Settings.Files(secret)
	if filepath.IsAbs(p.Address) {
		files = append(files, p.Address)
	}
	return files
}

// inherit takes over the settings that a life of the other plan took, if both plans have the
// same configuration: a new binary is not to fail because of a secret that is wrong just now.
func (p *Plan) inherit(other *Plan) {
	if reflect.DeepEqual(p.Written, other.Written) {
		p.ledger.is.good = other.ledger.read().good
	}
}

// same reports whether lives of both plans are the same.
func (p *Plan) same(other *Plan) bool {
	return p.Path == other.Path && p.SHA256 == other.SHA256 && reflect.DeepEqual(p.Source, other.Source)
}

// Status returns the status before anything is started.
func (p *Plan) Status() Status {
	return Status{Name: p.Name, Provider: p.Provider, Path: p.Path, SHA256: p.SHA256, State: Resolved}
}
