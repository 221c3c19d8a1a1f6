package command

import (
	"errors"
	"os"
	"time"
)

const (
	// lastLook is how long a read waits that was late, for a process that holds the pipe open.
	lastLook = 100 * time.Millisecond
	// lastLooks are enough for what a pipe holds.
	lastLooks = 16
)

// Pipe reads the output of a process to its end. After [os.File.SetReadDeadline] it still reads what is there
// already: on a busy machine, the deadline may pass before the reader has its turn.
type Pipe struct {
	*os.File
	looks int
}

// Read implements [io.Reader].
func (p *Pipe) Read(b []byte) (int, error) {
	n, err := p.File.Read(b)
	if p.looks == lastLooks || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	p.looks++
	if wrong := p.SetReadDeadline(time.Now().Add(lastLook)); wrong != nil {
		return n, err
	}
	return p.File.Read(b)
}
