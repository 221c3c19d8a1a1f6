package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

const nonBlocking = unix.O_NONBLOCK

// signal holds a pidfd while it checks the process. If the process exits and its PID is
// reused, the signal goes nowhere.
func (p Process) signal(pid int, signal syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d of %s: %w", pid, p.PIDFile, errNoProcess)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }() // closing it loses nothing
	if err := p.check(pid, fd); err != nil {
		return err
	}
	err = unix.PidfdSendSignal(fd, signal, nil, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("process %d of %s: %w", pid, p.PIDFile, errNoProcess)
	case errors.Is(err, unix.EPERM):
		return errno.Advise(fmt.Errorf("failed to signal process %d of %s: %w", pid, p.PIDFile, err), signalAdvice)
	case err != nil:
		return fmt.Errorf("failed to signal process %d of %s: %w", pid, p.PIDFile, err)
	}
	return nil
}

// What an agent that may not signal a process lacks. A command needs neither capability.
const (
	reloadAdvice = `; or reload with a command, such as ["/usr/bin/systemctl", reload, nginx.service]`
	signalAdvice = "another user's process needs CAP_KILL: AmbientCapabilities and CapabilityBoundingSet of systemd" + reloadAdvice
	lookAdvice   = "another user's process needs CAP_SYS_PTRACE: AmbientCapabilities and CapabilityBoundingSet of systemd" + reloadAdvice
)

// check verifies the user and the executable of the process that fd refers to.
func (p Process) check(pid, fd int) error {
	proc := fmt.Sprintf("/proc/%d", pid)
	info, err := os.Stat(proc)
	if err != nil {
		return p.unseen(pid, fd, err)
	}
	if owner, _ := ownerOf(info); owner != p.UID {
		return fmt.Errorf("process %d runs as user %d, it is to be user %d", pid, owner, p.UID)
	}
	running, err := os.Stat(proc + "/exe")
	if errors.Is(err, fs.ErrPermission) {
		return errno.Advise(fmt.Errorf("failed to look at the executable of process %d: %w", pid, err), lookAdvice)
	}
	if err != nil {
		return fmt.Errorf("failed to look at the executable of process %d: %w", pid, err)
	}
	wanted, err := os.Stat(p.Executable)
	if err != nil {
		return err
	}
	if !os.SameFile(running, wanted) {
		return fmt.Errorf("process %d of %s does not run %s", pid, p.PIDFile, p.Executable)
	}
	return nil
}

// unseen returns why /proc does not show a process: it has ended, or /proc hides it.
func (p Process) unseen(pid, fd int, err error) error {
	if missing := errno.NoProc(); missing != nil {
		return fmt.Errorf("process %d of %s: %w", pid, p.PIDFile, missing)
	}
	if hasEnded(fd) {
		return fmt.Errorf("process %d of %s: %w", pid, p.PIDFile, errNoProcess)
	}
	return errno.Advise(fmt.Errorf("process %d of %s runs, and /proc hides it: %w", pid, p.PIDFile, err),
		"ProtectProc= of systemd or the mount option hidepid hides other users' processes from one without CAP_SYS_PTRACE"+reloadAdvice)
}

// hasEnded reports whether the process of a pidfd has ended; the descriptor is readable then.
func hasEnded(fd int) bool {
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // #nosec G115 -- a descriptor is small
	return err == nil && ready > 0
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
