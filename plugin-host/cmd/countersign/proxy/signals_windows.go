package proxy

import (
	"os"
	"syscall"
)

// PassedOn are none: there are no such signals here.
func PassedOn() []os.Signal { return nil }

// SignalNamed knows none.
func SignalNamed(string) syscall.Signal { return 0 }
