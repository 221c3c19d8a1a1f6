package proxy

import (
	"os"
	"syscall"
)

// PassedOn is empty: this system has no such signals.
func PassedOn() []os.Signal { return nil }

// SignalNamed returns 0.
func SignalNamed(string) syscall.Signal { return 0 }
