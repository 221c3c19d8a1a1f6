package audit

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAuditLogIsAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for range 2 {
		a, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := a.Sink()
		if _, err := p.Write([]byte("a line\n")); err != nil || p.Sync() != nil || a.Close() != nil {
			t.Error(err)
		}
	}
	if text := read(t, path); text != "a line\na line\n" {
		t.Errorf("it has %q", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// While files are moved away and opened anew, each line is written once, whole.
func TestRotationLosesNoLine(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	a, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := a.Sink()
	const lines = 2000
	var writing sync.WaitGroup
	writing.Go(func() {
		for range lines {
			if _, err := p.Write([]byte("a line\n")); err != nil || p.Sync() != nil {
				t.Error(err)
			}
		}
	})
	for i := range 20 {
		if err := os.Rename(path, filepath.Join(dir, string(rune('a'+i)))); err != nil {
			t.Error(err)
		}
		if err := a.Reopen(); err != nil {
			t.Error(err)
		}
	}
	writing.Wait()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		found += strings.Count(read(t, filepath.Join(dir, e.Name())), "a line\n")
	}
	if found != lines {
		t.Errorf("%d lines of %d are there", found, lines)
	}
}

func TestOldAuditFileStaysInUseWhereNoNewOneCanBeOpened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := Open(filepath.Join(dir, "audit.log"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := a.Reopen(); err == nil || !strings.Contains(err.Error(), "audit.file is ") {
		t.Errorf("got %v", err)
	}
	p := a.Sink()
	if _, err := p.Write([]byte("a line\n")); err != nil || p.Sync() != nil {
		t.Error(err)
	}
	if text := read(t, filepath.Join(dir+"-moved", "audit.log")); text != "a line\n" {
		t.Errorf("it has %q", text)
	}
}

// A pipe takes no sync; one that is not read must not make the start wait.
func TestAuditLogCanBeAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, nil); err == nil {
		t.Error("a pipe without a reader is taken")
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	a, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p := a.Sink()
	if _, err := p.Write([]byte("a line\n")); err != nil {
		t.Error(err)
	}
	if err := p.Sync(); err != nil {
		t.Errorf("sync: %v", err)
	}
	if line, err := bufio.NewReader(reader).ReadString('\n'); line != "a line\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestEndWaitsForNoWriteThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = a.Sink().Write(make([]byte, 1<<20)) // more than a pipe holds
	}()
	deadline := time.Now().Add(time.Minute)
	for a.mu.TryLock() { // until the write has it
		a.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the write does not begin")
		}
	}
	if err := a.Close(); err == nil {
		t.Error("it was closed while it was written")
	}
	_ = reader.Close() // which ends the write
	<-ended
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestStandardOutputIsNeverClosed(t *testing.T) {
	a, err := Open(Stdout, os.Stdout)
	if err != nil || a.Reopen() != nil || a.Close() != nil || a.file != (standardOutput{os.Stdout}) {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := os.Stdout.Stat(); err != nil {
		t.Error(err)
	}
}

// A line may be in the old file and not on its disk when the file is exchanged: its writer must
// get the error.
func TestFailedSyncOfOldFileIsReported(t *testing.T) {
	a, err := Open(filepath.Join(t.TempDir(), "audit.log"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p, other := a.Sink(), a.Sink()
	line := func(p *Sink) {
		t.Helper()
		if _, err := p.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	line(p)
	_ = a.file.Close() // so that its sync fails
	_ = a.Reopen()
	line(other)
	if p.Sync() == nil {
		t.Error("no error was returned")
	}
	if err := other.Sync(); err != nil {
		t.Errorf("a line of the new file is lost: %v", err)
	}
	line(p)
	if err := p.Sync(); err != nil {
		t.Errorf("notified twice: %v", err)
	}
}

// The kernel reports a failed sync once, to the first process that syncs.
func TestSyncThatFailsForOneEngineFailsForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := a.Sink(), a.Sink()
	for _, p := range []*Sink{first, second} {
		if _, err := p.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	whole := a.file
	if a.file, err = os.Open("/dev/null"); err != nil {
		t.Fatal(err)
	}
	_ = a.file.Close()
	if first.Sync() == nil {
		t.Error("a failed sync returns no error")
	}
	a.file = whole // where the next sync succeeds
	if second.Sync() == nil {
		t.Error("a line that may be lost counts as written")
	}
	for _, p := range []*Sink{first, second} {
		if _, err := p.Write([]byte("a line\n")); err != nil || p.Sync() != nil {
			t.Errorf("the next line is not taken: %v", err)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestLineOfOneEngineStaysApartFromATornOneOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sink().Write([]byte("half a li")); err != nil {
		t.Fatal(err)
	}
	a.torn = true // as after a disk that was full
	for _, line := range []string{"one\n", "two\n"} {
		if n, err := a.Sink().Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if text := read(t, path); text != "half a li\none\ntwo\n" {
		t.Errorf("it has %q", text)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
