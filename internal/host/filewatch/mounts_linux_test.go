package filewatch_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// A volume for one file, or a subPath, stays the file that it was when the pod started.
func TestFileThatIsMountPointIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	mounted, plain := filepath.Join(dir, "mounted"), filepath.Join(dir, "plain")
	do(t, write(mounted), write(plain), write(filepath.Join(dir, "outside")), os.Symlink("mounted", filepath.Join(dir, "link")))
	var log logtest.Log
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its mounts
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			done <- err
			return
		}
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(filepath.Join(dir, "outside"), mounted, "", unix.MS_BIND, "")); err != nil {
			done <- err
			return
		}
		w := filewatch.New(filewatch.Options{NoEvents: true, Poll: time.Hour, Log: log.Logger()}, plain, filepath.Join(dir, "link"))
		w.Set(plain, filepath.Join(dir, "link"))
		w.Close()
		done <- nil
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "mount point of its own") != 1 || !strings.Contains(text, "file="+filepath.Join(dir, "link")) {
		t.Errorf("%q", text)
	}
}
