//go:build unix

package bootstrap

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nothing writes to the pipe: to open it would wait for good.
func TestPipeIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Faults(path, 1); len(got) != 1 || !strings.Contains(got[0], "not a regular file") {
		t.Errorf("%q", got)
	}
}
