package orders

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
)

// Memory is what the process holds, in bytes.
type Memory struct{ Resident, Heap, Stacks uint64 }

// readMemory waits until it is settled: each collection halves a stack that is
// little used, and what is free goes back to the system.
func readMemory() Memory {
	for range 4 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	read := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(read)
	return Memory{resident(), read[0].Value.Uint64(), read[1].Value.Uint64()}
}

// resident is the second number of statm, in pages.
func resident() uint64 {
	var size, pages uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &pages)
	}
	if err != nil {
		panic(err) // without it there is nothing to measure
	}
	return pages * uint64(os.Getpagesize())
}

// readCPU returns nanoseconds of user and system time.
func readCPU() int64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}
