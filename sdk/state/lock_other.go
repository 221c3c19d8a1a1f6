//go:build !unix

package state

import "os"

// lockFolder does nothing: this system cannot lock a folder.
func lockFolder(*os.File) error { return nil }
