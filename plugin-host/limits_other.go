//go:build !linux

package pluginhost

import (
	"errors"
	"syscall"
)

// restraint holds nothing on this system.
type restraint struct{}

// newRestraint says that limits are not applied. A user of its own is an error: it
// is a boundary that somebody counts on.
func newRestraint(opts Options, e Entry) (*restraint, error) {
	if e.User != "" {
		return nil, errors.New("user: a provider runs as another user on Linux only; leave it out")
	}
	if e.Limits != (Limits{}) {
		opts.Log.Warn("limits of a provider cannot be applied here", "provider", e.Name, "limits", "all: they need Linux")
	}
	return &restraint{}, nil
}

type confinement struct{}

func (*restraint) confine(*syscall.SysProcAttr) (*confinement, error) { return &confinement{}, nil }
func (*restraint) environment() []string                              { return nil }
func (*restraint) owns(string) error                                  { return nil }
func (*confinement) started(int) unapplied                            { return nil }
func (*confinement) ended()                                           {}
