//go:build linux || darwin

package fileca

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// checkOwner verifies that the folder is this user's and that no other user may write to it.
func checkOwner(folder *os.File, dir string, _ *slog.Logger) error {
	info, err := folder.Stat()
	if err != nil {
		return err
	}
	uid := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case uid != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, but this process runs as user %d", dir, uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %04o, so that others can write to it: use 0700", dir, info.Mode().Perm())
	}
	return nil
}

// lock waits for the exclusive lock of the folder. Closing the folder releases it.
func lock(ctx context.Context, folder *os.File) error {
	for {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func syncFolder(folder *os.File) error { return folder.Sync() }

// looseMode reports whether the mode gives others access to a key. The group may read it:
// Kubernetes mounts secrets like that for a process that is not root.
func looseMode(mode fs.FileMode) bool { return mode.Perm()&0o027 != 0 }
