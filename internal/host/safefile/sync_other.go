//go:build !unix

package safefile

import "os"

// syncNames does nothing: this system cannot sync a folder.
func syncNames(*os.File) error { return nil }
