//go:build cgo

package protect

// With cgo (the race detector needs it), a process cannot change the capabilities of all its threads.
func init() { withCgo = true }
