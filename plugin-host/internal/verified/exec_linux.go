package verified

import (
	"fmt"
	"log/slog"
	"strconv"

	"golang.org/x/sys/unix"
)

// replaceProcess executes what was verified, and nothing that lies at its path by now.
// Descriptors close at the exec, after the kernel has opened the program; only a script
// is opened once more, by its interpreter.
func (b *Binary) replaceProcess(args, env []string, _ *slog.Logger) error {
	if b.script {
		if _, err := unix.FcntlInt(b.file.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hold %s: %w", b.Path, err)
		}
	}
	if err := unix.Exec("/proc/self/fd/"+strconv.Itoa(int(b.file.Fd())), args, env); err != nil {
		return fmt.Errorf("run %s: %w", b.Path, err)
	}
	return nil
}
