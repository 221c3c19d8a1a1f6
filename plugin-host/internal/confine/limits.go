// Package confine bounds what a provider's process may take of the machine, and
// whom it runs as. Ask [New] for a [Restraint] once; it holds any number of
// processes.
package confine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits bound what a provider may take of the machine. Zero is no limit of ours.
// What cannot be applied on this machine is logged, and the provider runs without.
type Limits struct {
	// Memory in bytes, [MinMemory] at least. By cgroup v2 it bounds the provider and
	// all that it starts; elsewhere each process, by its private data (RLIMIT_DATA),
	// with 128 MiB more for what a runtime reserves and does not use.
	Memory int64
	// Descriptors that a process may have open (RLIMIT_NOFILE), [MinDescriptors] at least.
	Descriptors int
	// Processes and threads, [MinProcesses] at least: of the provider by cgroup v2;
	// elsewhere of its user, and not at all without one of its own (RLIMIT_NPROC).
	Processes int
	// CPU is how many processors' time it may use, [MinCPU] at least: 0.5 is half of
	// one. By cgroup v2 only.
	CPU float64
}

// What a provider that does its work gets along with.
const (
	MinMemory      = 64 << 20
	MinDescriptors = 32
	MinProcesses   = 32
	MinCPU         = 0.01
)

// Check tells what nobody could live with.
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
	if l.CPU != 0 && !(l.CPU >= MinCPU) { // not NaN either
		tooLow("cpu", l.CPU, MinCPU)
	}
	return errors.Join(errs...)
}

// environment tells a program in Go what it may take: it cleans up in time instead
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

// Unapplied are limits that cannot be applied here, each with the reason.
type Unapplied []string

func (u *Unapplied) add(limit, why string) { *u = append(*u, limit+": "+why) }

// String joins them into a sentence for a log.
func (u Unapplied) String() string { return strings.Join(u, "; ") }
