//go:build unix

package proxy

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// PassedOn lists the signals that the agent passes on to the proxy. SIGHUP is for the agent;
// SIGTERM and SIGINT end both.
func PassedOn() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }

// SignalNamed returns the signal with that name, without SIG; 0 if there is none.
func SignalNamed(name string) syscall.Signal { return unix.SignalNum("SIG" + name) }
