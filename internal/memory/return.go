package memory

import "runtime/debug"

// Return returns to the system what only the start of a program needed: free heap, and on Linux the
// mapped pages of its file. An idle program produces too little garbage for the runtime to do the
// former, and the kernel does the latter only when memory is short. Only programs call it; it takes
// a collection of garbage, and is safe for concurrent use.
func Return() {
	debug.FreeOSMemory()
	unmapProgram()
}
