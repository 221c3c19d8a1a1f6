package output

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Process is one to be told by a signal.
type Process struct {
	// PIDFile holds its number. Nobody but root and its own user may write it.
	PIDFile string
	// Executable is the path of the program that it has to run. Required.
	Executable string
	// UID is whom it has to run as.
	UID int
}

// Signal returns a Reload that sends a process a signal, after its user and its
// executable were found right. The process that was checked is the one that gets
// it, whatever becomes of its number.
func Signal(p Process, signal syscall.Signal) Reload {
	return func(_ context.Context, _ *slog.Logger) error {
		pid, err := p.pid()
		if err != nil {
			return err
		}
		return p.signal(pid, signal)
	}
}

func (p Process) pid() (int, error) {
	if err := p.checkFile(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(p.PIDFile)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:min(len(text), 32)])))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds no process number", p.PIDFile)
	}
	return pid, nil
}

func (p Process) checkFile() error {
	info, err := os.Stat(p.PIDFile)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", p.PIDFile)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o)", p.PIDFile, info.Mode().Perm())
	}
	if owner, ok := ownerOf(info); ok && owner != 0 && owner != p.UID {
		return fmt.Errorf("%s belongs to user %d, the process is to be user %d's", p.PIDFile, owner, p.UID)
	}
	return nil
}

var errNoProcess = errors.New("the process has ended")
