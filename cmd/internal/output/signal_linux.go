package output

import (
	"cmp"
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
	if err := p.check(pid); err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

func (p Process) check(pid int) error {
	proc := fmt.Sprintf("/proc/%d", pid)
	info, err := os.Stat(proc)
	if err != nil {
		return fmt.Errorf("process %d of %s: %w", pid, p.PIDFile, cmp.Or(errno.NoProc(), errNoProcess))
	}
	if owner, _ := ownerOf(info); owner != p.UID {
		return fmt.Errorf("process %d runs as user %d, it is to be user %d", pid, owner, p.UID)
	}
	running, err := os.Stat(proc + "/exe")
	if err != nil {
		return fmt.Errorf("look at the executable of process %d: %w", pid, err)
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

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
