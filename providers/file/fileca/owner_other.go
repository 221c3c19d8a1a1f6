//go:build !linux && !darwin

package fileca

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
)

// checkOwner can only say that nothing is checked here.
func checkOwner(_ *os.File, dir string, log *slog.Logger) error {
	log.Warn("on this system nobody checks who may write to the CA's folder or read its key", "dir", dir)
	return nil
}

// lock does nothing: of two first starts at once, one may fail on the other's file.
func lock(context.Context, *os.File) error { return nil }

func syncFolder(*os.File) error { return nil }

func looseMode(fs.FileMode) bool { return false }
