//go:build !linux && !darwin

package fileca

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
)

// checkOwner logs that nothing is checked on this system.
func checkOwner(_ *os.File, dir string, log *slog.Logger) error {
	log.Warn("access to the CA's folder and key is not checked on this system", "dir", dir)
	return nil
}

// lock does nothing: of two first starts at once, one may fail.
func lock(context.Context, *os.File) error { return nil }

func syncFolder(*os.File) error { return nil }

func looseMode(fs.FileMode) bool { return false }
