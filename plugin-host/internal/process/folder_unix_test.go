//go:build unix

package process

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Starts beside each other sweep what was left behind, but not each other's.
func TestConcurrentStartsKeepEachOthersFolders(t *testing.T) {
	if testing.Short() {
		t.Skip("many folders")
	}
	base, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				d, err := NewFolder(base)
				if err != nil {
					t.Error(err)
					return
				}
				if !d.isThere() {
					t.Errorf("%s was swept away while it was locked", d.Path)
				}
				d.Remove()
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestUnlockableFolderIsRemoved(t *testing.T) {
	base := t.TempDir()
	var limit, few syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few = limit
	few.Cur = 0 // what is open stays open; nothing more can be
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := makeLocked(base)
	if restored := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if left, _ := os.ReadDir(base); err == nil || len(left) > 0 {
		t.Errorf("%v; left: %v", err, left)
	}
}

// A host that runs a provider as another user gives it the folder.
func TestFolderLeftToOtherUserIsSwept(t *testing.T) {
	base, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	left := filepath.Join(base, runtimePrefix+"123")
	if err := errors.Join(os.Mkdir(left, 0o700), os.WriteFile(filepath.Join(left, "socket"), nil, 0o600), os.Chown(left, 64017, 64017)); err != nil {
		t.Fatal(err)
	}
	d, err := NewFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Remove()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
