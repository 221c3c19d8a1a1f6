//go:build unix

package process

import (
	"os"
	"sync"
	"syscall"
	"testing"
)

// Starts beside each other sweep what was left behind, but not each other's.
func TestFoldersOfStartsBesideEachOtherStay(t *testing.T) {
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

func TestAFolderThatCannotBeLockedIsNotLeftBehind(t *testing.T) {
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
