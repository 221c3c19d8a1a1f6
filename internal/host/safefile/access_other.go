//go:build !unix

package safefile

import "io/fs"

// withoutWaiting is nothing: this system has no named pipes among its files.
const withoutWaiting = 0

// CheckAccess does nothing: this system has no file modes.
func CheckAccess(string, fs.FileInfo, fs.FileMode, ...int) error { return nil }

// OfRoot reports false: this system has no root.
func OfRoot(fs.FileInfo) bool { return false }
