package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func TestLoggedErrorNamesWhatToChange(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		cli.NewLog(&out, format, slog.LevelInfo).Error("cannot write", "error", fmt.Errorf("write files: %w", &fs.PathError{Op: "open", Path: "a", Err: syscall.EROFS}))
		if !strings.Contains(out.String(), "read-only file system (the file system is mounted read-only: mount it writable") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
