//go:build unix

package safefile

import "os"

func syncNames(folder *os.File) error { return folder.Sync() }
