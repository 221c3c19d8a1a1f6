package memory

import (
	"os"
	"runtime/debug"
	"sync"
)

const (
	// least and most bound the budget of a process. Two replies fit into the least: a share is then
	// one, and its holder leaves the other to all others.
	least, most = 24 << 20, 64 << 20
	// part of the memory that it is.
	part = 8
)

// SetLimit has the garbage collector keep to nine tenths of the memory that the system grants this
// process, unless the environment has a GOMEMLIMIT. Only programs call it.
func SetLimit() {
	if granted := granted(); granted > 0 && os.Getenv("GOMEMLIMIT") == "" { // which may be "off"
		debug.SetMemoryLimit(granted / 10 * 9)
	}
}

// Process returns the budget for what others send to this process: an eighth of GOMEMLIMIT or of
// the memory that the system grants, 24 to 64 MiB.
var Process = sync.OnceValue(func() *Budget {
	limit := debug.SetMemoryLimit(-1)
	if granted := granted(); granted > 0 {
		limit = min(limit, granted)
	}
	return New(min(max(limit/part, least), most))
})
