// Package process holds a process of this machine by a descriptor, so that its PID cannot come to
// mean another process: call [Hold], or [HoldPeer] for a socket's peer, ask the [Held] process for its
// attributes, and [Held.Close] it. A goroutine waits for the end of each held process. Linux only:
// elsewhere Hold returns an error that is [errors.ErrUnsupported].
package process

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// ErrNotFound means that no process has the PID, or that it has ended.
var ErrNotFound = errors.New("no such process")

// ErrHidden means that this program cannot see the attributes of the process.
var ErrHidden = errors.New("the process is hidden")

// Held is a process that [Hold] returned. Its methods are safe for concurrent use. What it returns is
// true of this process, and of no other that got the same PID: an error is [ErrNotFound] if the
// process has ended.
type Held struct {
	pid    int32
	file   *os.File // its pidfd; nil for a peer that this system cannot hold
	hidden error    // why nothing below /proc is of this process; nil if it is

	mu  sync.Mutex
	ran map[string]fs.FileInfo // the files that it was found to run, by path
}

// PID returns the process ID in the PID namespace of this program, 0 if it has none there.
func (h *Held) PID() int32 { return h.pid }

// Close stops waiting. It does nothing to the process.
func (h *Held) Close() error {
	if h.file == nil {
		return nil
	}
	return h.file.Close()
}
