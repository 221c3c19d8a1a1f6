package verified

import (
	"fmt"
	"log/slog"
	"strconv"

	"golang.org/x/sys/unix"
)

// replaceProcess executes the verified content, not what is at its path now. The
// descriptor closes at exec, after the kernel has opened the program; a script must stay
// open for its interpreter.
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
