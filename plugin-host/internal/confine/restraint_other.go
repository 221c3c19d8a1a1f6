//go:build !linux

package confine

import (
	"errors"
	"syscall"
)

// Restraint holds nothing on this system.
type Restraint struct{}

// New reports that limits are not applied. A user of its own is an error: it is a
// boundary that operators rely on.
func New(_, user string, limits Limits) (*Restraint, Unapplied, error) {
	if user != "" {
		return nil, nil, errors.New("user: running a provider as another user needs Linux; omit it")
	}
	if limits != (Limits{}) {
		return &Restraint{}, Unapplied{"all: limits need Linux"}, nil
	}
	return &Restraint{}, nil, nil
}

// User returns false: it is the host's own.
func (*Restraint) User() (uid uint32, own bool) { return 0, false }

// Environment is empty.
func (*Restraint) Environment() []string { return nil }

// Owns does nothing.
func (*Restraint) Owns(string) error { return nil }

// Confine does nothing.
func (*Restraint) Confine(*syscall.SysProcAttr) (*Confinement, error) { return &Confinement{}, nil }

// Confinement holds nothing on this system.
type Confinement struct{}

// Started does nothing.
func (*Confinement) Started(int) Unapplied { return nil }

// Ended does nothing.
func (*Confinement) Ended() {}
