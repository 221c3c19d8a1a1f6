package errno_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

func TestErrorNamesWhatToChange(t *testing.T) {
	for code, says := range map[syscall.Errno]string{
		syscall.EBUSY: "mount the folder", syscall.EROFS: "read-only", syscall.ENOSPC: "df -i", syscall.EDQUOT: "quota", syscall.EACCES: "owner and mode",
		syscall.EPERM: "capabilities", syscall.EMFILE: "RLIMIT_NOFILE", syscall.ENFILE: "fs.file-max", syscall.EADDRINUSE: "another program", syscall.ENAMETOOLONG: "shorter",
		syscall.ELOOP: "circle", syscall.EXDEV: "one file system", syscall.ETXTBSY: "renaming",
	} {
		cause := fmt.Errorf("write files: %w", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: code})
		err := errno.Explain(cause)
		if !strings.HasPrefix(err.Error(), cause.Error()+" (") || !strings.Contains(err.Error(), says) || !errors.Is(err, code) {
			t.Errorf("%v", err)
		}
		if again := errno.Explain(fmt.Errorf("output: %w", err)); again.Error() != "output: "+err.Error() {
			t.Errorf("explained twice: %v", again)
		}
	}
}

func TestAdviceForNetworkIsNotThatForFiles(t *testing.T) {
	for _, test := range []struct {
		op, network string
		code        syscall.Errno
		says        string
	}{
		{"listen", "tcp", syscall.EACCES, "CAP_NET_BIND_SERVICE"},
		{"listen", "tcp", syscall.EADDRINUSE, "another program"},
		{"listen", "tcp", syscall.EADDRNOTAVAIL, "choose another"},
		{"dial", "tcp", syscall.EACCES, "firewall"},
		{"dial", "tcp", syscall.EPERM, "firewall"},
		{"dial", "tcp", syscall.EADDRNOTAVAIL, "connect from"},
		{"dial", "tcp", syscall.EMFILE, "RLIMIT_NOFILE"},
		{"dial", "unix", syscall.EACCES, "owner and mode"},
	} {
		err := errno.Explain(&net.OpError{Op: test.op, Net: test.network, Err: os.NewSyscallError("connect", test.code)})
		if !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v, want advice with %q", err, test.says)
		}
	}
}

func TestAdviceForStartOfProgram(t *testing.T) {
	for code, says := range map[syscall.Errno]string{
		syscall.EACCES: "noexec", syscall.EAGAIN: "TasksMax", syscall.ENOENT: "interpreter", syscall.ENOEXEC: "#!", syscall.EMFILE: "RLIMIT_NOFILE",
	} {
		err := errno.Explain(&fs.PathError{Op: "fork/exec", Path: "/opt/ca", Err: code})
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want advice with %q", err, says)
		}
	}
}

func TestOtherErrorIsAsItWas(t *testing.T) {
	for _, err := range []error{nil, errors.New("refused"), &fs.PathError{Op: "open", Path: "/a", Err: syscall.ENOENT}, &fs.PathError{Op: "open", Path: "/proc/none", Err: syscall.ENOENT}} {
		if got := errno.Explain(err); got != err { //nolint:errorlint // that very error
			t.Errorf("%v became %v", err, got)
		}
	}
}
