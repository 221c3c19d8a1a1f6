package supervise

import "reflect"

// Plan is what lives are started from.
type Plan struct {
	Name     string         // of the entry
	Provider string         // what the provider must call itself
	Settings map[string]any // for each life
	Path     string         // of the binary; empty in process
	SHA256   string         // of the binary; empty without one
	// Source is what the plan was made from. Plans of equal Source, Path and SHA256 are
	// the same.
	Source any
	// Launch starts a life. It is called on the supervisor's own thread.
	Launch func(number int) (Instance, error)
	// Close releases what Launch needs. Lives that were started run on.
	Close func()

	proven bool // a life of it has been ready: its settings need no second check
}

// same reports whether lives of both plans are the same.
func (p *Plan) same(other *Plan) bool {
	return p.Path == other.Path && p.SHA256 == other.SHA256 && reflect.DeepEqual(p.Source, other.Source)
}

// Status is that of a plan of which nothing was started.
func (p *Plan) Status() Status {
	return Status{Name: p.Name, Provider: p.Provider, Path: p.Path, SHA256: p.SHA256, State: Resolved}
}
