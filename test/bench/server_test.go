package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// server is one in a process of its own, which obeys orders.
type server struct {
	socket string // of a streamserver
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
}

// memory is what a server says of itself, in bytes.
type memory struct{ Resident, Heap, Stacks int64 }

func (b *bench) serve() (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "streams")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	s, err := b.startServer("streamserver", socket)
	if err != nil {
		return nil, err
	}
	s.socket = socket
	return s, nil
}

func (b *bench) startServer(program string, args ...string) (*server, error) {
	s := &server{cmd: exec.Command(filepath.Join(b.root, program), args...)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return s, s.cmd.Start()
}

// ask sends a command and reads the answer into it.
func (s *server) ask(command string, answer any) error {
	if _, err := fmt.Fprintln(s.in, command); err != nil {
		return err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the server answers nothing to %q: %w", command, err)
	}
	return json.Unmarshal(line, answer)
}

func (s *server) memory() (m memory, err error) {
	return m, s.ask("memory", &m)
}

func (s *server) cpu() (d time.Duration, err error) {
	return d, s.ask("cpu", &d)
}

// close ends the server, which does so when its input ends.
func (s *server) close() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }

// appear waits until the socket is answered.
func appear(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := dialWhenThere(ctx, socket)
	if err != nil {
		return err
	}
	return conn.Close()
}
