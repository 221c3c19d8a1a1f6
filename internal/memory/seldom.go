package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The runtime begins with GOGC at usual, and lets a heap grow to so many bytes with it whatever is in use.
const (
	usual    = 100
	smallest = 4 << 20
)

// CollectSeldom has garbage collected once there are that many bytes of it, or as many as there are bytes
// in use, if these are more. A server with a small heap would otherwise collect dozens of times a second
// under load. The limit of [SetLimit] has the runtime collect sooner. The environment's GOGC takes
// precedence, and so does what the program has set before. Only programs call it.
func CollectSeldom(garbage uint64) {
	if os.Getenv("GOGC") == "" && sum("/gc/gogc:percent") == usual {
		begin.Do(func() { (&pace{garbage: garbage, percent: usual}).next() })
	}
}

var begin sync.Once

// pace sets GOGC after each collection.
type pace struct {
	garbage uint64
	percent int
}

func (p *pace) next() {
	percent := percentFor(p.garbage, inUse())
	// Each change stops all goroutines for a moment.
	if percent > p.percent*5/4 || percent < p.percent*4/5 {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(&sentinel{}, (*pace).next, p) // last, as it may run at once
}

func percentFor(garbage, inUse uint64) int {
	return max(int(garbage*usual/max(inUse, smallest)), usual) // #nosec G115 -- a few thousand
}

// inUse is the heap that the last collection found in use, with all stacks and globals, as the runtime
// counts these.
func inUse() (bytes uint64) {
	return sum("/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes")
}

// sum adds metrics of the runtime, as far as it has them.
func sum(names ...string) (all uint64) {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	for _, sample := range samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			all += sample.Value.Uint64()
		}
	}
	return all
}
