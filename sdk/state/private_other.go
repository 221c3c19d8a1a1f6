//go:build !unix

package state

import "io/fs"

// checkPrivate knows of no modes here.
func checkPrivate(string, fs.FileInfo) error { return nil }
