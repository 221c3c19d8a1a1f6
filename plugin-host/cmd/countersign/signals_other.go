//go:build !unix

package main

import "syscall"

// signals cannot be sent here.
var signals map[string]syscall.Signal
