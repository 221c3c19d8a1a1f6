//go:build !linux

package cli

import "os"

// streamOf knows no journal here.
func streamOf(*os.File) (stream string, ok bool) { return "", false }
