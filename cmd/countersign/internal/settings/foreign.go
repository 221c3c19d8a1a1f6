package settings

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// probeTimeout bounds the probe whether another program serves SDS. Where its answer is later, as on a busy
// machine, the agent ends with a code after which systemd does not start it again. Istio's agent allows one
// second; if the answer is late, it removes the socket.
const probeTimeout = 10 * time.Second

// foreignAt returns the program other than Countersign that serves SDS at the agent's
// socket; nil if there is none. A program that listens there and may not be left alone is
// an error. The code that takes the socket handles all else (nothing, a dead socket, no
// socket, a running Countersign).
func foreignAt(s config.Socket) (*config.Foreign, error) {
	// The lock is beside the socket itself, wherever links lead there from.
	path, err := filepath.EvalSymlinks(s.Path)
	if err != nil || !listens(path) {
		return nil, nil
	}
	if ours, err := unixsocket.Locked(path); err != nil || ours {
		return nil, notClear(s.Path, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	peer, refusal := sds.Probe(ctx, path)
	if peer == nil {
		return nil, nil // it was a Countersign that ended just now
	}
	// One that has begun just now has its lock before its socket.
	if ours, err := unixsocket.Locked(path); err != nil || ours {
		return nil, notClear(s.Path, err)
	}
	switch {
	case !mayBeLeft(s, peer.UID):
		return nil, fmt.Errorf("socket.path is %q: another program (uid %d) is listening there; add %d to socket.foreign_uids to leave the socket to it, or stop it or choose another path", s.Path, peer.UID, peer.UID)
	case refusal != nil:
		return nil, fmt.Errorf("socket.path is %q: a program (uid %d) is listening there that is not a healthy SDS server: %w; stop it or choose another path", s.Path, peer.UID, refusal)
	}
	return &config.Foreign{UID: peer.UID, PID: peer.PID}, nil
}

// listens reports whether a program takes connections at a socket. The lock is not
// checked before: the check could get in the way of a program that is about to take it.
func listens(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func notClear(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("socket.path is %q: a program is listening there, which may not be Countersign: %w; stop it or choose another path", path, err)
}

// mayBeLeft reports whether the workload's identity may come from a program of that
// user.
func mayBeLeft(s config.Socket, uid uint32) bool {
	return uid == 0 || int(uid) == os.Geteuid() || slices.Contains(s.ForeignUIDs, uid)
}
