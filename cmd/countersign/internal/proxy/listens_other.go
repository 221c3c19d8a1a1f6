//go:build !linux

package proxy

// listens is unknown on this system.
func listens(int) bool { return true }
