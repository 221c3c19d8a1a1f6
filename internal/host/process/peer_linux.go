package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// userHZ is the unit of times in /proc, 1/100 s on every architecture of Linux that Go has.
const userHZ = 100

// SinceBoot returns the time since the machine's start, suspends included.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// HoldPeer is [Hold] for the process that opened a connection, with its PID as the kernel recorded it,
// and the time [SinceBoot] when the connection was accepted. The kernel holds the process for the
// connection (SO_PEERPIDFD, Linux 6.5). Before that, another process with this PID is told by its
// later start. If it has no PID in this program's namespace, its attributes are [ErrHidden].
func HoldPeer(conn *net.UnixConn, pid int32, accepted time.Duration, ended func()) (*Held, error) {
	h := &Held{pid: pid}
	if err := checkProc(); err != nil {
		h.hidden = fmt.Errorf("%w: %w", ErrHidden, err)
	} else if pid <= 0 {
		h.hidden = fmt.Errorf("%w: it is in another PID namespace than the agent; run the agent with hostPID: true (Kubernetes) or --pid=host", ErrHidden)
	}
	fd, err := peerFD(conn)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL): // the latter before Linux 6.16
		return nil, fmt.Errorf("%d: %w", pid, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("failed to hold process %d: %w", pid, errno.Explain(err))
	case fd >= 0:
		return hold(h, fd, ended)
	case errors.Is(h.hidden, ErrHidden):
		return h, nil
	}
	return holdSince(pid, accepted, ended)
}

// peerFD returns a pidfd of the process that opened a connection, or -1 before Linux 6.5.
func peerFD(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	failed := raw.Control(func(socket uintptr) { fd, err = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	switch err = errors.Join(failed, err); {
	case errors.Is(err, unix.ENOPROTOOPT):
		return -1, nil
	case err != nil:
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// holdSince holds a process that was there at a time since the machine's start.
func holdSince(pid int32, then time.Duration, ended func()) (*Held, error) {
	h, err := Hold(pid, ended)
	if err != nil {
		return nil, err
	}
	start, err := h.start()
	switch {
	case errors.Is(err, ErrHidden):
		return h, nil // its PID is not used
	case err != nil:
		return nil, errors.Join(err, h.Close())
	case start > int64(then/(time.Second/userHZ)):
		return nil, errors.Join(fmt.Errorf("%d is another process by now: %w", pid, ErrNotFound), h.Close())
	}
	return h, nil
}

// start returns when the process began, in 1/userHZ s since the machine's start: field 22 of
// /proc/PID/stat (proc(5)). The second, the program's name, may have spaces and parentheses.
func (h *Held) start() (ticks int64, err error) {
	err = h.about(func(proc string) error {
		text, err := os.ReadFile(proc + "stat")
		if err != nil {
			return err
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 20 {
			return errors.New("/proc has no start time")
		}
		ticks, err = strconv.ParseInt(fields[19], 10, 64)
		return err
	})
	return ticks, err
}
