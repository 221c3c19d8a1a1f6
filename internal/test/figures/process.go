package figures

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat (sysconf _SC_CLK_TCK).
const tick = 10 * time.Millisecond

// Usage returns the CPU time that a process has used, and its resident memory in KiB.
func Usage(pid int) (cpu time.Duration, kib float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // the first is the third of proc(5)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	held, err3 := Resident(pid)
	return time.Duration(user+system) * tick, float64(held), errors.Join(err1, err2, err3)
}

// CPU returns the CPU time that the threads of a process have used, to the nanosecond (schedstat).
func CPU(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d has no threads", pid)
	}
	var used time.Duration
	for _, path := range threads {
		var of time.Duration
		text, readErr := os.ReadFile(path)
		_, scanErr := fmt.Sscan(string(text), &of)
		used, err = used+of, errors.Join(err, readErr, scanErr)
	}
	return used, err
}

// Resident returns VmRSS in KiB.
func Resident(pid int) (int, error) { return status(pid, "VmRSS:") }

// Anonymous returns RssAnon in KiB.
func Anonymous(pid int) (int, error) { return status(pid, "RssAnon:") }

// Private returns in KiB what no other process has mapped, of anonymous memory and of files.
func Private(pid int) (kib int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); strings.HasPrefix(fields[0], "Private_") && len(fields) > 1 {
			part, err := strconv.Atoi(fields[1])
			if err != nil {
				return 0, err
			}
			kib += part
		}
	}
	return kib, nil
}

// status returns a number of /proc/PID/status.
func status(pid int, name string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), name); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, name)
}
