package programs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

var folders struct {
	sync.Mutex
	byNames map[string]string
}

// Folder returns a folder with copies of these programs and nothing else, the same one at
// each call; [Remove] removes it.
func Folder(tb testing.TB, names ...string) string {
	tb.Helper()
	proctest.NeedsProcess(tb)
	folders.Lock()
	defer folders.Unlock()
	key := strings.Join(names, " ")
	if dir, ok := folders.byNames[key]; ok {
		return dir
	}
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		tb.Fatal(err)
	}
	if folders.byNames == nil {
		folders.byNames = map[string]string{}
	}
	folders.byNames[key] = dir
	if err := fill(dir, names); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// fill copies: a hard link would change the time by which the host recognizes a binary that
// it has verified, for all tests at once.
func fill(dir string, names []string) error {
	for _, name := range names {
		path, err := find(name)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := writeProgram(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // others run what is in it
}

// writeProgram writes a program while no other test starts one: a process that is forked
// meanwhile would hold the file open for a moment, and its start would fail with ETXTBSY.
func writeProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755) //nolint:gosec // others run it
}

// Remove removes all folders. TestMain calls it when the tests have run.
func Remove() error {
	folders.Lock()
	defer folders.Unlock()
	var errs []error
	for _, dir := range folders.byNames {
		errs = append(errs, os.RemoveAll(dir))
	}
	clear(folders.byNames)
	return errors.Join(errs...)
}
