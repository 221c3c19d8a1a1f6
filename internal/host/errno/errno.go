// Package errno explains what to change when the operating system refuses a call: [Explain] appends
// advice to an error. What reads, writes, listens or starts programs calls it, and so do the logs
// and exits of all programs.
package errno

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// explained is an error with advice.
type explained struct {
	error
	advice string
}

func (e explained) Error() string { return e.error.Error() + " (" + e.advice + ")" }
func (e explained) Unwrap() error { return e.error }

// Explain returns err with what to change in parentheses, where the system's error has an entry in
// the table and err has no advice yet. errors.Is and errors.As see through it.
func Explain(err error) error {
	if _, done := errors.AsType[explained](err); err == nil || done {
		return err
	}
	if advice := adviceFor(err); advice != "" {
		return explained{err, advice}
	}
	return err
}

// Advise returns err with advice of its own, where the table's would be wrong.
func Advise(err error, advice string) error { return explained{err, advice} }

// Text returns the text of err with the table's advice, unless it has that already.
func Text(said string, err error) string {
	if advice := adviceFor(err); advice != "" && !strings.HasSuffix(said, ")") {
		return said + " (" + advice + ")"
	}
	return said
}

func adviceFor(err error) string {
	code, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok:
		return ""
	case code == syscall.ENOENT && inProc(err):
		return noProc
	case starting[code] != "" && isStart(err):
		return starting[code]
	}
	if advice := networkAdvice(err, code); advice != "" {
		return advice
	}
	advice := table[code]
	if say := numbers[code]; say != nil {
		advice = say() + advice
	}
	return advice
}

// isStart reports whether a program could not be started.
func isStart(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && failed.Op == "fork/exec"
}

// networkAdvice is for calls of a network that fail with the number of a file's.
func networkAdvice(err error, code syscall.Errno) string {
	failed, ok := errors.AsType[*net.OpError](err)
	if !ok || strings.HasPrefix(failed.Net, "unix") {
		return ""
	}
	if failed.Op == "listen" {
		return listening[code]
	}
	return connecting[code]
}

const noProc = "this system has no /proc: mount a file system of type proc there"

// inProc reports whether a file of /proc is missing as all of /proc is.
func inProc(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && strings.HasPrefix(failed.Path, "/proc/") && NoProc() != nil
}

// NoProc returns an error where /proc is not mounted, which Linux needs to run verified programs
// and to find processes.
func NoProc() error {
	if runtime.GOOS != "linux" {
		return nil
	}
	if _, err := os.Lstat("/proc/self"); errors.Is(err, fs.ErrNotExist) {
		return errors.New(noProc)
	}
	return nil
}

// table has what to change, in the order of errno(3).
var table = map[syscall.Errno]string{
	syscall.EACCES:        "check the owner and mode of the file and of each folder above it, then SELinux or AppArmor",
	syscall.EADDRINUSE:    "another program listens there: stop it, or choose another address",
	syscall.EADDRNOTAVAIL: "no interface of this machine has that address: choose another",
	syscall.EAFNOSUPPORT:  "this machine has no such network, for example no IPv6: choose another address",
	syscall.EBUSY:         "it is in use, or a mount point of its own: mount the folder that has it, not the file",
	syscall.EDQUOT:        "the quota for this user, group or project is used up: raise it, or remove files",
	syscall.EFBIG:         "raise the limit for the size of files: LimitFSIZE of systemd, or ulimit -f",
	syscall.EIO:           "the device or the network file system fails: see the kernel's log",
	syscall.EISDIR:        "it is a folder: name a file",
	syscall.ELOOP:         "links lead in a circle, or a link is where a plain file has to be: replace it",
	syscall.EMFILE:        "raise RLIMIT_NOFILE: LimitNOFILE of systemd, or ulimit -n",
	syscall.ENAMETOOLONG:  "choose a shorter path: 255 bytes for a name, 107 for a socket's whole path",
	syscall.ENFILE:        "all programs of this machine together have too many files open: raise fs.file-max",
	syscall.ENODEV:        "the file system does not support it: choose another one",
	syscall.ENOEXEC:       "it is not a program for this machine, or a script without #! in its first line",
	syscall.ENOMEM:        "raise the memory limit of this service or container",
	syscall.ENOSPC:        "the file system has no room or no inodes left: see df and df -i",
	syscall.ENOSYS:        "the kernel does not have the call, or a seccomp profile hides it",
	syscall.ENOTDIR:       "a name in the path is a file, and a folder has to be there",
	syscall.ENOTEMPTY:     "the folder has other files: empty it, or choose another",
	syscall.ENOTSUP:       "the file system does not support it: choose another one",
	syscall.EPERM:         "check the owner, then capabilities, a seccomp profile, and lsattr for an immutable file",
	syscall.EROFS:         "the file system is mounted read-only: mount it writable, or choose another path",
	syscall.ESTALE:        "the network file system's server has replaced it: mount it anew",
	syscall.ETXTBSY:       "the program's file is being written: install programs by renaming",
	syscall.EXDEV:         "both names have to be on one file system and one mount: choose another folder",
}

// starting is what a number means for a program that could not be started.
var starting = map[syscall.Errno]string{
	syscall.EACCES: "check the owner and mode of the program and of each folder above it, the mount option noexec, then SELinux or AppArmor",
	syscall.EAGAIN: "raise the limit for processes: TasksMax of systemd, pids.max of the container, or ulimit -u",
	syscall.ENOENT: "the program is missing, or the interpreter or loader that it names, for example glibc's on Alpine",
}

const forbidden = "a firewall, a seccomp profile or SELinux of this machine forbids the connection"

var listening = map[syscall.Errno]string{
	syscall.EACCES: "a port below 1024 needs CAP_NET_BIND_SERVICE, AmbientCapabilities of systemd: grant it, or choose a higher port",
}

var connecting = map[syscall.Errno]string{
	syscall.EACCES:        forbidden,
	syscall.EADDRNOTAVAIL: "this machine has no address or no port left to connect from: check its interfaces, for example for IPv6, and how many connections are open",
	syscall.EPERM:         forbidden,
}

// numbers are this process's values of a limit.
var numbers = map[syscall.Errno]func() string{syscall.EMFILE: openFiles}
