package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// initialNamespace is what the kernel calls the first PID namespace (PROC_PID_INIT_INO).
const initialNamespace = "pid:[4026531836]"

// InInitialNamespace reports whether this program is in the machine's own PID namespace, so that it
// sees all processes. It is true if that is unknown.
func InInitialNamespace() bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	return err != nil || own == initialNamespace
}

// MaxPID returns the number of PIDs there are, or 0 if that is unknown: kernel.pid_max, which is
// 4,194,304 on most machines, and 32,768 where systemd has not raised it.
func MaxPID() int {
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

// checkProc returns an error unless /proc is that of this program's PID namespace. The numbers of
// another one are those of other processes.
func checkProc() error {
	own, err := os.Readlink("/proc/self")
	if err == nil && own != strconv.Itoa(os.Getpid()) {
		err = errors.New("/proc is that of another PID namespace: mount that of the agent's own, or run the agent in the machine's")
	}
	return errno.Explain(err)
}

// Hold returns the process with this PID in the PID namespace of this program. It calls ended, in a
// goroutine of its own, when that process ends, unless Close came before.
func Hold(pid int32, ended func()) (*Held, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%d: %w", pid, ErrNotFound)
	}
	if err := checkProc(); err != nil {
		return nil, fmt.Errorf("failed to hold process %d: %w", pid, err)
	}
	fd, err := open(pid)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // the latter two of a thread
		return nil, fmt.Errorf("%d: %w", pid, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("failed to hold process %d: %w", pid, errno.Explain(err))
	}
	return hold(&Held{pid: pid}, fd, ended)
}

// hold takes a pidfd over and waits for the end of its process. It leaves descriptors for others.
func hold(h *Held, fd int, ended func()) (*Held, error) {
	if fd >= errno.Room() {
		return nil, errors.Join(fmt.Errorf("failed to hold process %d: %w", h.pid, errno.Explain(unix.EMFILE)), unix.Close(fd))
	}
	h.file = os.NewFile(uintptr(fd), "pidfd") // #nosec G115 -- a descriptor
	raw, err := h.file.SyscallConn()
	if err == nil {
		err = h.alive()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	go func() {
		over := false
		// The descriptor is readable once the process has ended.
		if raw.Read(func(fd uintptr) bool { over = hasEnded(fd); return over }) == nil && over {
			ended()
		}
	}()
	return h, nil
}

// open does not use PIDFD_NONBLOCK: Linux before 5.10 answers it as it does the PID of a thread.
func open(pid int32) (fd int, err error) {
	if fd, err = unix.PidfdOpen(int(pid), 0); err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func hasEnded(fd uintptr) bool {
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // #nosec G115 -- a descriptor is small
	return err == nil && ready > 0
}

// alive returns ErrNotFound if the process has ended. While it has not, its PID is its own: what was
// read below /proc before is of this process.
func (h *Held) alive() error {
	if h.file == nil {
		return nil
	}
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	over := false
	if err := raw.Control(func(fd uintptr) { over = hasEnded(fd) }); err != nil {
		return err
	}
	if over {
		return fmt.Errorf("%d: %w", h.pid, ErrNotFound)
	}
	return nil
}

// about calls read, and returns its error only if the process was there meanwhile.
func (h *Held) about(read func(proc string) error) error {
	if h.hidden != nil {
		return cmp.Or(h.alive(), h.hidden)
	}
	failed := read("/proc/" + strconv.Itoa(int(h.pid)) + "/")
	if err := h.alive(); err != nil {
		return err
	}
	if errors.Is(failed, fs.ErrNotExist) || errors.Is(failed, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrHidden, errno.Advise(failed, "to look at other users' processes, an agent needs CAP_SYS_PTRACE, and a /proc that shows them: no ProtectProc= of systemd, no mount option hidepid"))
	}
	return failed
}

// User returns the effective user and group.
func (h *Held) User() (uid, gid uint32, err error) {
	err = h.about(func(proc string) error {
		text, err := os.ReadFile(proc + "status")
		if err != nil {
			return err
		}
		if uid, err = effective(string(text), "\nUid:"); err == nil {
			gid, err = effective(string(text), "\nGid:")
		}
		return err
	})
	return uid, gid, err
}

// effective returns the second number of a line of /proc/PID/status: real, effective, saved, file system.
func effective(status, key string) (uint32, error) {
	_, rest, _ := strings.Cut(status, key)
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc has no %s", strings.TrimSpace(key))
	}
	n, err := strconv.ParseUint(fields[1], 10, 32)
	return uint32(n), err
}

// Runs reports whether the process runs the program at path, as this program sees it. Two files with
// the same path in different containers are different programs. A program that was found at path once
// stays the one there when another file replaces it, as an upgrade of a package does: no other file
// gets its device and inode while the process runs it.
func (h *Held) Runs(path string) (same bool, err error) {
	err = h.about(func(proc string) error {
		running, err := os.Stat(proc + "exe")
		if err != nil {
			return err
		}
		if same = h.hasRun(path, running); same {
			return nil
		}
		wanted, err := os.Stat(path)
		if same = err == nil && os.SameFile(running, wanted); same {
			h.found(path, running)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // then no process runs it
		}
		return err
	})
	return same, err
}

// hasRun reports whether a file is the one that was found at path before.
func (h *Held) hasRun(path string, file fs.FileInfo) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.ran[path]
	return was != nil && os.SameFile(was, file)
}

func (h *Held) found(path string, file fs.FileInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ran == nil {
		h.ran = map[string]fs.FileInfo{}
	}
	h.ran[path] = file
}

// Cgroup returns the path of the process in the hierarchy of cgroup v2, as this program sees it, such
// as /system.slice/web.service.
func (h *Held) Cgroup() (path string, err error) {
	err = h.about(func(proc string) error {
		text, err := os.ReadFile(proc + "cgroup")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "0::"); ok {
				path = strings.TrimSuffix(rest, "\n")
				return nil
			}
		}
		return errors.New("this system has no cgroup v2; identify processes by uid, gid and executable")
	})
	return path, err
}
