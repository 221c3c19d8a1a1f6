//go:build !linux

package process

import (
	"errors"
	"fmt"
	"net"
	"time"
)

var errUnsupported = fmt.Errorf("%w: processes cannot be held on this system: %w", ErrHidden, errors.ErrUnsupported)

// InInitialNamespace reports whether this program sees all processes.
func InInitialNamespace() bool { return true }

// MaxPID is unknown on this system.
func MaxPID() int { return 0 }

// Hold is not supported on this system.
func Hold(int32, func()) (*Held, error) { return nil, errUnsupported }

// SinceBoot is not supported on this system.
func SinceBoot() time.Duration { return 0 }

// HoldPeer returns a process whose end is not noticed, and whose attributes are [ErrHidden].
func HoldPeer(_ *net.UnixConn, pid int32, _ time.Duration, _ func()) (*Held, error) {
	return &Held{pid: pid}, nil
}

// User is not supported on this system.
func (h *Held) User() (uid, gid uint32, err error) { return 0, 0, errUnsupported }

// Runs is not supported on this system.
func (h *Held) Runs(string) (bool, error) { return false, errUnsupported }

// Cgroup is not supported on this system.
func (h *Held) Cgroup() (string, error) { return "", errUnsupported }
