package pluginhost

import (
	"context"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// resident is an instance without a process.
type resident struct {
	wire.Provider
	ended chan struct{}
}

// newResident makes a life of a provider that is a value in this process.
func newResident(p wire.Provider) instance { return &resident{p, make(chan struct{})} }

func (r *resident) Connect(context.Context) error { return nil }
func (r *resident) Ended() <-chan struct{}        { return r.ended }
func (r *resident) Err() error                    { return errClosing }
func (r *resident) Health(context.Context) error  { return nil }
func (r *resident) Kill(error)                    {}
func (r *resident) Hide([]ca.Token)               {} // it logs by itself

// Stop closes the provider if it has a Close method.
func (r *resident) Stop(context.Context) {
	if c, ok := r.Provider.(interface{ Close() error }); ok {
		_ = c.Close()
	}
}

// Report implements instance.
func (r *resident) Report() process.Report {
	m, _ := r.Metadata(context.Background())
	return process.Report{Authentication: process.InHost, Metadata: m}
}
