package pluginhost

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// resident is an instance without a process.
type resident struct {
	wire.Provider
	ended chan struct{}
}

func newResident(p wire.Provider) *resident { return &resident{p, make(chan struct{})} }

func (r *resident) Ended() <-chan struct{}       { return r.ended }
func (r *resident) Err() error                   { return errClosing }
func (r *resident) Health(context.Context) error { return nil }
func (r *resident) Kill(error)                   {}

// Stop closes the provider where it can be closed.
func (r *resident) Stop(context.Context) {
	if c, ok := r.Provider.(interface{ Close() error }); ok {
		_ = c.Close()
	}
}

// Describe implements instance.
func (r *resident) Describe(s *Status) {
	s.Authentication = InHost
	s.Metadata, _ = r.Metadata(context.Background())
}
