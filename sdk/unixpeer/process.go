package unixpeer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/peer"

	"github.com/countersign-dev/countersign/internal/host/process"
)

// ErrEnded means that the process has ended.
var ErrEnded = process.ErrNotFound

// Process is the process that opened the connection of an RPC, which [Hold] returned. Its methods are
// safe for concurrent use. What they return is true of that process, and of no other that got the same
// PID: an error is [ErrEnded] if the process has ended.
type Process struct {
	held *process.Held
	peer Peer
}

// Hold returns the process that opened the connection of an RPC on a server with our [Credentials]. It
// calls ended, in a goroutine of its own, when the process ends, unless Close came before. Linux holds
// the process by a descriptor; other systems do not notice its end.
func Hold(ctx context.Context, ended func()) (*Process, error) {
	remote, _ := peer.FromContext(ctx)
	if remote == nil {
		return nil, errUnknown
	}
	info, ok := remote.AuthInfo.(peerInfo)
	if !ok {
		return nil, errUnknown
	}
	held, err := process.HoldPeer(info.conn, info.PID, info.accepted, ended)
	if err != nil {
		return nil, err
	}
	return &Process{held, info.Peer}, nil
}

var errUnknown = errors.New("the peer is not known: the server has other credentials than those of unixpeer")

// PID is that of the PID namespace of this program, 0 if the process has none there.
func (p *Process) PID() int32 { return p.held.PID() }

// User returns the effective user and group with which the process opened the connection. It is an
// error if the process has others by now: it may have run a program of another user, and have left the
// connection to a process of the first one. Where /proc hides the process, that is not noticed.
func (p *Process) User() (uid, gid uint32, err error) {
	uid, gid, err = p.held.User()
	switch {
	case errors.Is(err, process.ErrHidden):
		return p.peer.UID, p.peer.GID, nil
	case err != nil:
		return 0, 0, err
	case uid != p.peer.UID || gid != p.peer.GID:
		return 0, 0, fmt.Errorf("%w: it was of uid %d, gid %d and is of uid %d, gid %d", ErrChanged, p.peer.UID, p.peer.GID, uid, gid)
	}
	return uid, gid, nil
}

// ErrChanged means that the process has become another user's since it opened the connection.
var ErrChanged = errors.New("the process is another user's by now")

// Runs reports whether the process runs the program at path, as this program sees it.
func (p *Process) Runs(path string) (bool, error) { return p.held.Runs(path) }

// Cgroup returns its path in the hierarchy of cgroup v2, as this program sees it.
func (p *Process) Cgroup() (string, error) { return p.held.Cgroup() }

// Close ends the hold. It does nothing to the process.
func (p *Process) Close() error { return p.held.Close() }
