//go:build !unix

package outputs

import "syscall"

// signals cannot be sent here.
var signals map[string]syscall.Signal
