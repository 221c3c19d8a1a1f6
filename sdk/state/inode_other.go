//go:build !unix

package state

import "os"

// inode returns 0: this system shows none.
func inode(os.FileInfo) uint64 { return 0 }
