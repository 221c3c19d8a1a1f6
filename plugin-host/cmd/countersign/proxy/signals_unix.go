//go:build unix

package proxy

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// PassedOn are the signals to the agent that are the proxy's. SIGHUP is the agent's
// own, SIGTERM and SIGINT end both.
func PassedOn() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }

// SignalNamed returns the signal of a name without SIG, 0 where there is none.
func SignalNamed(name string) syscall.Signal { return unix.SignalNum("SIG" + name) }
