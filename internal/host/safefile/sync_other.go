//go:build !unix

package safefile

import "os"

// syncNames does nothing: a folder cannot be synced here.
func syncNames(*os.File) error { return nil }
