package proxy

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OrphansInterval is the usual interval of ReapOrphans.
const OrphansInterval = 10 * time.Second

// ReapOrphans reaps the orphans that were reparented to this process, until ctx ends. Only
// process 1 of a container and a subreaper (prctl(2)) get orphans; in any other process it
// returns at once.
//
// The children of this process are reaped at once by the code that started them. A process
// that is a zombie for a whole interval is therefore an orphan.
func ReapOrphans(ctx context.Context, interval time.Duration, log *slog.Logger) {
	if os.Getpid() != 1 && !isSubreaper() {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var before []int
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := zombies()
		for _, pid := range still(before, now) {
			if got, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == pid {
				log.Debug("reaped an orphan", "pid", pid)
			}
		}
		before = now
	}
}

// still returns the elements of before that are also in now.
func still(before, now []int) []int {
	return slices.DeleteFunc(slices.Clone(before), func(pid int) bool { return !slices.Contains(now, pid) })
}

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0) //nolint:gosec // prctl writes through the pointer
	return err == nil && is != 0
}

// zombies returns the children of this process that have ended.
func zombies() []int {
	self, found := strconv.Itoa(os.Getpid()), []int(nil)
	tables, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // it is gone
		}
		// "PID (NAME) STATE PARENT …"; the name may contain anything (proc_pid_stat(5)).
		line := string(text)
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == self {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(table)))
			found = append(found, pid)
		}
	}
	return found
}
