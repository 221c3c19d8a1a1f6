package protect

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const missing = ""

func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make this process non-dumpable: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("disable core dumps: %w", err)
	}
	return keepToSelf()
}

// own are the capabilities that an agent uses itself, to write files for other users and to signal
// their programs. Others, such as CAP_NET_BIND_SERVICE, are also for the programs that it starts.
var own = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER,
	unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_PTRACE,
}

// keepToSelf removes these from the ambient set, so that no program which this process starts inherits
// them: a service manager's AmbientCapabilities= would give each provider what the agent has.
func keepToSelf() error {
	for _, capability := range own {
		set, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, capability, 0, 0)
		if err != nil || set == 0 { // a kernel before 4.3 has no such set
			continue
		}
		// The set belongs to each thread.
		_, _, failed := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, capability, 0, 0, 0)
		if failed != 0 {
			return fmt.Errorf("keep capability %d from the programs that this process starts (a build with CGO_ENABLED=0 can): %w", capability, failed)
		}
	}
	return nil
}

func traced() bool {
	status, err := os.ReadFile("/proc/self/status")
	_, tracer, found := strings.Cut(string(status), "\nTracerPid:")
	tracer, _, _ = strings.Cut(tracer, "\n")
	return err == nil && found && strings.TrimSpace(tracer) != "0"
}
