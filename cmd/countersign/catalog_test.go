package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// "provider install" pins the bytes that it has verified: a file that changes after that must not run.
func TestLockRunsNoOtherBytesThanThosePinned(t *testing.T) {
	dir := t.TempDir()
	ran, path := filepath.Join(dir, "ran"), filepath.Join(dir, "countersign-provider-acme@1.0.0")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho yes >"+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := catalog.Catalog{Options: pluginhost.Options{Dirs: []string{dir}}, Locked: &lock.Lock{}}
	target, err := c.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	target.Pin = strings.Repeat("0a", 32)
	if _, _, err := c.Lock(t.Context(), target); err == nil || !strings.Contains(err.Error(), "is not locked") {
		t.Errorf("it is locked: %v", err)
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
	target.Pin = ""
	if _, _, err := c.Lock(t.Context(), target); err == nil {
		t.Error("a program that is not a provider is locked")
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("without a pin it did not run: %v", err)
	}
}
