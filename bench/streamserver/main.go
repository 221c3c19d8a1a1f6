// Command streamserver serves one secret over SDS, and over the SPIFFE Workload API
// on a socket whose name ends in ".spiffe", for measuring what streams cost. It obeys lines on standard input and answers each with one line of JSON:
// "rotate" (answered when all watchers are told), "memory" (answered when garbage
// is collected and given back) and "cpu".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "streamserver:", err)
		os.Exit(1)
	}
}

func run(socket string) error {
	held, err := newRotating()
	if err != nil {
		return err
	}
	server, err := sds.Listen(sds.Config{Path: socket}, held)
	if err != nil {
		return err
	}
	spiffe, err := workloadapi.Listen(workloadapi.Config{Path: socket + ".spiffe"}, held)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve() }()
	go func() { failed <- spiffe.Serve() }()
	go func() { failed <- obey(held) }()
	return <-failed
}

// obey returns when there are no more lines.
func obey(held *rotating) error {
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var answer any
		switch lines.Text() {
		case "rotate":
			if err := held.rotate(); err != nil {
				return err
			}
		case "memory":
			answer = readMemory()
		case "cpu":
			answer = readCPU()
		default:
			return fmt.Errorf("%q is no command", lines.Text())
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

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
