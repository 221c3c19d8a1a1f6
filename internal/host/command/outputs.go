package command

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// What is written beyond floodBytes is read with a pause after each of them: no caller keeps so
// much, and reading a flood takes a core. The program waits, too.
const (
	floodBytes = 512 << 10
	floodPause = 50 * time.Millisecond
)

// outputs copy what a program writes.
type outputs struct {
	copies  []*outputCopy
	running sync.WaitGroup
	done    chan struct{} // closed when nothing holds them open any more
}

type outputCopy struct {
	from  Pipe
	child *os.File
	to    io.Writer
	held  bool // by another process, when the reads had to end
}

// newOutputs connects both outputs. One writer for both gets one pipe.
func newOutputs(cmd *exec.Cmd, stdout, stderr io.Writer) (*outputs, error) {
	o := &outputs{done: make(chan struct{})}
	out, err := o.pipe(stdout)
	cmd.Stdout, cmd.Stderr = out, out
	if err == nil && stderr != stdout {
		cmd.Stderr, err = o.pipe(stderr)
	}
	if err != nil {
		o.closeChild()
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *outputs) pipe(to io.Writer) (child *os.File, err error) {
	from, child, err := os.Pipe()
	if err == nil {
		o.copies = append(o.copies, &outputCopy{from: Pipe{File: from}, child: child, to: to})
	}
	return child, err
}

// start copies, once the program has its ends.
func (o *outputs) start() {
	for _, c := range o.copies {
		o.running.Go(c.run)
	}
	go func() { defer close(o.done); o.running.Wait() }()
}

func (c *outputCopy) run() {
	buf, unpaused := make([]byte, 32<<10), 0
	for {
		n, err := c.from.Read(buf)
		if _, failed := c.to.Write(buf[:n]); err != nil || failed != nil {
			c.held = errors.Is(err, os.ErrDeadlineExceeded)
			return
		}
		if unpaused += n; unpaused >= floodBytes {
			unpaused = 0
			time.Sleep(floodPause)
		}
	}
}

// end waits a moment for what was written before the program ended, and reports whether a process
// that it left behind holds an output open.
func (o *outputs) end() (held bool) {
	select {
	case <-o.done:
		return false
	case <-time.After(lastWords):
	}
	for _, c := range o.copies {
		if c.from.SetReadDeadline(time.Now()) != nil {
			return true // the system has no deadlines for pipes
		}
	}
	<-o.done
	return slices.ContainsFunc(o.copies, func(c *outputCopy) bool { return c.held })
}

func (o *outputs) closeChild() {
	for _, c := range o.copies {
		_ = c.child.Close()
	}
}

// close ends the copies.
func (o *outputs) close() {
	for _, c := range o.copies {
		_ = c.from.Close()
	}
	o.running.Wait()
}
