//go:build !unix

package acmeca

import (
	"io/fs"
	"os"
	"os/exec"
)

// tryLock does nothing: on this system, one process at a time may use a folder.
func tryLock(*os.File) (bool, error) { return true, nil }

// ownGroup does nothing: on this system, what the program has started outlives it.
func ownGroup(*exec.Cmd) {}

// looseMode does nothing: on this system, the mode does not decide who may read a file.
func looseMode(fs.FileMode) bool { return false }
