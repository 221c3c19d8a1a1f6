package process

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// ForbidPrivileges keeps everything that this thread starts from gaining privileges from
// files, by set-user-ID or file capabilities (no_new_privs of prctl(2), inherited).
func ForbidPrivileges(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		log.Warn("cannot set no_new_privs, providers can execute set-user-ID programs", "error", err)
	}
}
