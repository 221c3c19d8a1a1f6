//go:build !unix

package state

import "io/fs"

// checkPrivate does nothing: this system has no file modes.
func checkPrivate(string, fs.FileInfo) error { return nil }

// checkKeyFile does nothing for the same reason.
func checkKeyFile(string, fs.FileInfo) error { return nil }
