//go:build unix

package output

import "os"

func syncNames(folder *os.File) error { return folder.Sync() }
