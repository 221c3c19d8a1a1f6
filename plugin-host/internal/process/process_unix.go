//go:build unix

package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeSockets makes the lifeline and the channel.
func (p *pipes) makeSockets() error {
	var err error
	if p.lifeline, p.childLifeline, err = socketPair("lifeline"); err != nil {
		return err
	}
	host, child, err := socketPair("channel")
	if err != nil {
		return err
	}
	defer host.Close()
	p.childChannel = child
	p.channel, err = net.FileConn(host)
	return err
}

func socketPair(name string) (host, child *os.File, err error) {
	// Both must be close-on-exec before another goroutine starts a process.
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make the %s: %w", name, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// killGroup kills the rest of a process group.
func killGroup(id int) { _ = syscall.Kill(-id, syscall.SIGKILL) }
