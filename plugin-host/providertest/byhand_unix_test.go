//go:build unix

package providertest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// A script that is started by hand has children, which end with it: the child here holds a pipe.
func TestStartByHandLeavesNoProcess(t *testing.T) {
	proctest.NeedsProcess(t)
	path := filepath.Join(t.TempDir(), "countersign-provider-script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nsleep 60 > $0.pipe &\nwait\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path+".pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- (&rig{path: path}).byHand(ctx, nil) }()
	pipe, err := os.Open(path + ".pipe") // waits for the child
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Error(err)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		t.Errorf("the child still runs: %v", err)
	}
}
