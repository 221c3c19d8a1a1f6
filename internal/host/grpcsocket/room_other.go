//go:build !unix

package grpcsocket

// room is not known on this system.
func room() int { return 1 << 30 }
