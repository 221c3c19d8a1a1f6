//go:build unix

package providertest

import (
	"os"
	"syscall"
)

// stopSignal makes a process stand still.
var stopSignal os.Signal = syscall.SIGSTOP
