//go:build unix

package grpcsocket

import "golang.org/x/sys/unix"

// room returns how many of the process's descriptors connections may use. A quarter, 256 at
// most, is left for providers, files and calls.
func room() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	most := int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // it is signed on FreeBSD
	return most - min(256, most/4)
}
