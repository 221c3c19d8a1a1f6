package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const missingProtection = ""

// protect keeps keys out of core dumps and of what a process of the same user may
// read of this one's memory. It has to come before the first key.
func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make this process not dumpable: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}
