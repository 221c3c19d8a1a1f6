package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Process identifies the process to signal.
type Process struct {
	// PIDFile is the path of its PID file. Only root and UID may have write access.
	PIDFile string
	// Executable is the path of the program that the process must run. Required.
	Executable string
	// UID is the user that the process must run as.
	UID int
}

// Signal returns a Reload that signals a process after checking its user and executable.
// Only the checked process can get the signal, even if its PID is reused.
func Signal(p Process, signal syscall.Signal) Reload {
	return func(_ context.Context, _ *slog.Logger) error {
		pid, err := p.pid()
		if err != nil {
			return err
		}
		return p.signal(pid, signal)
	}
}

// pid returns the PID from the first line: PostgreSQL writes more lines.
func (p Process) pid() (int, error) {
	// Opening a pipe without a writer must not block the agent.
	file, err := os.OpenFile(p.PIDFile, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read, so the error does not matter
	if err := p.checkFile(file); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(io.LimitReader(file, 64))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds no process number on its first line", p.PIDFile)
	}
	return pid, nil
}

func (p Process) checkFile(file *os.File) error {
	info, err := file.Stat()
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
