//go:build unix

package safefile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Another user who may write to the folder may put a pipe in place of the file before it is opened.
func TestOpeningWaitsForNoWriter(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		if file, err := open(root, "pipe"); err == nil {
			_ = file.Close()
		}
	}()
	select {
	case <-opened:
	case <-time.After(2 * time.Minute):
		t.Error("it waits for a writer")
		if writer, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			defer writer.Close()
		}
		<-opened
	}
	if err := root.Close(); err != nil {
		t.Error(err)
	}
}
