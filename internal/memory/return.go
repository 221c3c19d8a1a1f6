package memory

import (
	"os"
	"runtime"
	"runtime/debug"
)

// later is the percentage (GOGC) with which the first collection of garbage begins at 16 MiB of heap
// instead of 4.
const later = 400

// CollectLate has the first collection of garbage begin at 16 MiB, which most programs do not reach
// before [Return]. Each collection during a start costs about a millisecond and finds little. From
// the first one on, the runtime collects as usual. The environment's GOGC takes precedence. Only
// programs call it.
func CollectLate() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(later)
	runtime.AddCleanup(&sentinel{}, func(usual int) { debug.SetGCPercent(usual) }, usual)
}

// sentinel is what a collection finds unused. It has a pointer, as the runtime may keep others longer.
type sentinel struct{ _ *sentinel }

// Return returns to the system what only the start of a program needed: free heap, and on Linux the
// mapped pages of its file. An idle program produces too little garbage for the runtime to do the
// former, and the kernel does the latter only when memory is short. Only programs call it; it takes
// a collection of garbage, and is safe for concurrent use.
func Return() {
	debug.FreeOSMemory()
	unmapProgram()
}
