// Package confine limits the resources of a provider's processes and sets the user that
// they run as. [New] makes one [Restraint] for all processes of a provider.
//
// Package pluginhost makes the restraint, package process applies it to each start. It has
// no goroutines; cgroups live in the kernel and go with their process.
package confine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits bound the resources of a provider. Zero means no limit. The host logs a limit
// that this system cannot apply, and runs the provider without it.
type Limits struct {
	// Memory in bytes, at least [MinMemory]. With cgroup v2 it bounds the provider and its
	// descendants together; otherwise each process, by its private data (RLIMIT_DATA),
	// plus 128 MiB that a runtime reserves and does not use.
	Memory int64
	// Descriptors that a process may have open (RLIMIT_NOFILE), at least [MinDescriptors].
	Descriptors int
	// Processes and threads, at least [MinProcesses]: of the provider with cgroup v2;
	// otherwise of its separate user (RLIMIT_NPROC), and not at all without one.
	Processes int
	// CPU in processors, at least [MinCPU]: 0.5 is half of one. Needs cgroup v2.
	CPU float64
}

// The least that a working provider needs.
const (
	MinMemory      = 64 << 20
	MinDescriptors = 32
	MinProcesses   = 32
	MinCPU         = 0.01
)

// Check returns an error for limits that no provider could work with.
func (l Limits) Check() error {
	var errs []error
	tooLow := func(name string, value, least any) {
		errs = append(errs, fmt.Errorf("limits.%s is %v: use %v or more, or omit it for no limit", name, value, least))
	}
	if l.Memory != 0 && l.Memory < MinMemory {
		tooLow("memory", l.Memory, MinMemory)
	}
	if l.Descriptors != 0 && l.Descriptors < MinDescriptors {
		tooLow("descriptors", l.Descriptors, MinDescriptors)
	}
	if l.Processes != 0 && l.Processes < MinProcesses {
		tooLow("processes", l.Processes, MinProcesses)
	}
	if l.CPU != 0 && !(l.CPU >= MinCPU) { // catches NaN, too
		tooLow("cpu", l.CPU, MinCPU)
	}
	return errors.Join(errs...)
}

// environment passes its limits to a Go program, so that it collects garbage in time instead
// of being killed.
func (l Limits) environment() []string {
	var env []string
	if l.Memory > 0 {
		env = append(env, "GOMEMLIMIT="+strconv.FormatInt(l.Memory/10*9, 10))
	}
	if l.CPU > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(max(1, int(l.CPU+0.5))))
	}
	return env
}

// Unapplied are limits that this system cannot apply, each with the reason.
type Unapplied []string

func (u *Unapplied) add(limit, why string) { *u = append(*u, limit+": "+why) }

// String joins them for a log.
func (u Unapplied) String() string { return strings.Join(u, "; ") }
