//go:build unix

package state_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

func openLog(t testing.TB, path string, key []byte) *state.Log {
	t.Helper()
	l, err := state.OpenLog(path, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLogIsPrivateAndForOneProcess(t *testing.T) {
	key, path := newKey(t), filepath.Join(t.TempDir(), "deep", "state")
	l := openLog(t, path, key)
	must(t, l.Store(context.Background(), secret.Entry{Name: "a.example.org"}, example))
	for at, want := range map[string]fs.FileMode{path: 0o700, filepath.Join(path, "names.log"): 0o600} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", at, info, err)
		}
	}
	if text, err := os.ReadFile(only(t, path)); err != nil || bytes.Contains(text, example.Content) {
		t.Errorf("the log shows the content, or %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s %x", l, l, l, l, l); text != strings.Join([]string{path, path, path, path, path}, " ") {
		t.Error(text)
	}
	if _, err := state.OpenLog(path, key, nil); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second time: %v", err)
	}
	must(t, l.Close())
	f := open(t, path, key) // a folder may have both
	store(t, f, "default", example)
	again := openLog(t, path, key)
	if r, err := again.Load(context.Background(), "a.example.org"); err != nil || !bytes.Equal(r.Content, example.Content) {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestUntrustedLogIsRefused(t *testing.T) {
	for says, spoil := range map[string]func(t *testing.T, path, file string){
		"folder: chmod go-rwx": func(t *testing.T, path, _ string) { must(t, os.Chmod(path, 0o750)) },
		"file: chmod go-rwx":   func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o640)) },
		"link: not a regular": func(t *testing.T, path, file string) {
			other := filepath.Join(t.TempDir(), "other")
			must(t, os.Rename(file, other))
			must(t, os.Symlink(other, file))
		},
		"pipe: not a regular": func(t *testing.T, _, file string) {
			must(t, os.Remove(file))
			must(t, syscall.Mkfifo(file, 0o600))
		},
	} {
		path, key := filepath.Join(t.TempDir(), "state"), newKey(t)
		must(t, openLog(t, path, key).Close())
		spoil(t, path, filepath.Join(path, "names.log"))
		_, want, _ := strings.Cut(says, ": ")
		if _, err := state.OpenLog(path, key, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", says, err)
		}
	}
	for _, c := range []struct {
		path string
		key  []byte
	}{{t.TempDir(), []byte("short")}, {"", newKey(t)}} {
		if _, err := state.OpenLog(c.path, c.key, nil); err == nil {
			t.Errorf("%q opens", c.path)
		}
	}
}

func TestUnfinishedCompactionIsReplaced(t *testing.T) {
	path, key := filepath.Join(t.TempDir(), "state"), newKey(t)
	l := openLog(t, path, key)
	must(t, os.WriteFile(filepath.Join(path, ".new-names.log"), []byte("unfinished"), 0o600))
	content := bytes.Repeat([]byte("x"), 100_000)
	for range 50 {
		must(t, l.Store(context.Background(), secret.Entry{Name: "a.example.org"}, secret.Record{Content: content}))
	}
	must(t, l.Close())
	if info, err := os.Stat(only(t, path)); err != nil || info.Size() > 2<<20 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
}

// TestIndexTakesBoundedTimeAndMemory opens a log of 10,000 names; BenchmarkOpenLog has 100,000.
func TestIndexTakesBoundedMemory(t *testing.T) {
	const names = 10_000
	path, key := filepath.Join(t.TempDir(), "state"), newKey(t)
	fill(t, openLog(t, path, key), names, 200)
	before := heap()
	l := openLog(t, path, key)
	if perName := (heap() - before) / names; perName > 400 {
		t.Errorf("the index takes %d bytes a name", perName)
	}
	if entries, err := l.Index(context.Background()); err != nil || len(entries) != names {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// fill stores records of many names and closes the log.
func fill(t testing.TB, l *state.Log, names, size int) {
	t.Helper()
	var all sync.WaitGroup
	turns := make(chan int)
	for range 500 {
		all.Go(func() {
			for i := range turns {
				e := secret.Entry{Name: fmt.Sprintf("customer-%d.shop.example.org", i), Renew: time.Now(), Ends: time.Now().Add(time.Hour)}
				if err := l.Store(context.Background(), e, secret.Record{Identity: e.Name, Authority: "acme", Content: make([]byte, size)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range names {
		turns <- i
	}
	close(turns)
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkOpenLog(b *testing.B) {
	for _, names := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			path, key := filepath.Join(b.TempDir(), "state"), bytes.Repeat([]byte("0123456789abcdef"), 4)
			began := time.Now()
			fill(b, openLog(b, path, key), names, 4000)
			b.ReportMetric(float64(names)/time.Since(began).Seconds(), "stored/s")
			for b.Loop() {
				before := heap()
				l := openLog(b, path, key)
				b.ReportMetric(float64(heap()-before)/float64(names), "bytes/name")
				began := time.Now()
				for i := range 1000 {
					if r, err := l.Load(context.Background(), fmt.Sprintf("customer-%d.shop.example.org", i)); err != nil || len(r.Content) == 0 {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "µs/load")
				_ = l.Close()
			}
		})
	}
}
