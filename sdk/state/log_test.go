package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

var (
	testKey   = bytes.Repeat([]byte("0123456789abcdef"), 4)
	testRenew = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	testEnds  = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
)

func entryOf(name string) secret.Entry {
	return secret.Entry{Name: name, Renew: testRenew, Ends: testEnds}
}

func recordOf(content string) secret.Record {
	return secret.Record{Identity: "dns", Authority: "ca", Content: []byte(content)}
}

func openTest(t testing.TB, d disk) *Log {
	t.Helper()
	l, err := openLog("folder", testKey, d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func storeTest(t testing.TB, l *Log, name, content string) {
	t.Helper()
	if err := l.Store(context.Background(), entryOf(name), recordOf(content)); err != nil {
		t.Fatal(err)
	}
}

// wantRecord checks a record; empty content means that there is none.
func wantRecord(t testing.TB, l *Log, name, content string) {
	t.Helper()
	r, err := l.Load(context.Background(), name)
	if err != nil || string(r.Content) != content || content != "" && (r.Identity != "dns" || r.Authority != "ca") {
		t.Errorf("%s: %.40q, %v; want %.40q", name, r.Content, err, content)
	}
}

func TestLogKeepsLatestRecordOfEachName(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	storeTest(t, l, "a.example.org", "first")
	storeTest(t, l, "b.example.org", "other")
	storeTest(t, l, "a.example.org", "second")
	storeTest(t, l, "c.example.org", "gone")
	for _, name := range []string{"c.example.org", "unknown.example.org"} {
		if err := l.Delete(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		wantRecord(t, l, "a.example.org", "second")
		wantRecord(t, l, "b.example.org", "other")
		wantRecord(t, l, "c.example.org", "")
		wantRecord(t, l, "unknown.example.org", "")
		entries, err := l.Index(context.Background())
		slices.SortFunc(entries, func(a, b secret.Entry) int { return cmp.Compare(a.Name, b.Name) })
		if want := []secret.Entry{entryOf("a.example.org"), entryOf("b.example.org")}; err != nil || !slices.Equal(entries, want) {
			t.Errorf("the index is %v, %v", entries, err)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		l = openTest(t, d)
	}
	if err := l.Store(context.Background(), entryOf("b.example.org"), secret.Record{}); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, l, "b.example.org", "")
}

func TestRecordThatDoesNotFitIsRefused(t *testing.T) {
	l := openTest(t, newMemDisk(1))
	for says, c := range map[string]struct {
		name    string
		content int
	}{"content has": {"a", maxFile}, "names have": {strings.Repeat("a", maxHeader), 1}, "needs a name": {"", 1}, "in UTF-8": {"\xff", 1}} {
		err := l.Store(context.Background(), secret.Entry{Name: c.name}, secret.Record{Content: make([]byte, c.content)})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	most := strings.Repeat("x", maxFile-maxSealedHeader-64)
	storeTest(t, l, "a.example.org", most)
	wantRecord(t, l, "a.example.org", most)
}

func TestManyWritersShareAnFsync(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	queued := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waiting)
	}
	var first sync.Once
	d.onSync = func() {
		first.Do(func() { // it takes until all others wait
			for queued() < 199 {
				time.Sleep(time.Millisecond)
			}
		})
	}
	before := d.syncs
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			storeTest(t, l, fmt.Sprintf("%d.example.org", i), fmt.Sprint(i))
		})
	}
	all.Wait()
	if n := d.syncs - before; n > 2 {
		t.Errorf("%d records took %d fsyncs", 200, n)
	}
	again := openTest(t, d.restart(true))
	for i := range 200 {
		wantRecord(t, again, fmt.Sprintf("%d.example.org", i), fmt.Sprint(i))
	}
}

func TestCanceledStoreReturnsWhileDiskHangs(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	hang, hangs := make(chan struct{}), make(chan struct{}, 10)
	d.onSync = func() { hangs <- struct{}{}; <-hang }
	done := make(chan error)
	go func() {
		done <- l.Store(context.Background(), entryOf("a.example.org"), recordOf("first"))
	}()
	<-hangs
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Store(ctx, entryOf("b.example.org"), recordOf("second")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantRecord(t, l, "a.example.org", "") // loading waits for no disk
	close(hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLogIsCompactedWhileItIsUsed(t *testing.T) {
	compactSoon(t)
	d := newMemDisk(1)
	l := openTest(t, d)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("%d.example.org", i)
			for n := range 200 {
				storeTest(t, l, name, fmt.Sprintf("%d of %d", n, i))
				wantRecord(t, l, name, fmt.Sprintf("%d of %d", n, i))
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if size := len(d.files[logName].content); size > 20_000 || len(d.files) != 1 {
		t.Errorf("the log has %d bytes in %d files", size, len(d.files))
	}
	again := openTest(t, d)
	for i := range 8 {
		wantRecord(t, again, fmt.Sprintf("%d.example.org", i), fmt.Sprintf("199 of %d", i))
	}
}

// What is stored and deleted while another file is written is in it, whichever way that ends.
func TestRecordsAreStoredWhileLogIsCompacted(t *testing.T) {
	compactSoon(t)
	for _, fails := range []bool{false, true} {
		d := newMemDisk(1)
		l := openTest(t, d)
		storeTest(t, l, "gone.example.org", "gone")
		storeTest(t, l, "kept.example.org", "kept")
		hang, hangs := make(chan struct{}), make(chan struct{}, 100)
		var once sync.Once
		d.mu.Lock()
		d.onCreate = func() { once.Do(func() { hangs <- struct{}{}; <-hang }) }
		d.mu.Unlock()
		for i := range 20 {
			storeTest(t, l, "new.example.org", fmt.Sprint(i))
		}
		<-hangs
		storeTest(t, l, "new.example.org", "while it is compacted")
		if err := l.Delete(context.Background(), "gone.example.org"); err != nil {
			t.Fatal(err)
		}
		if fails {
			d.mu.Lock()
			d.fails, d.err = d.step+2, syscall.ENOSPC
			d.mu.Unlock()
		}
		id := l.id
		close(hang)
		l.work.Wait()
		if (l.id == id) != fails {
			t.Errorf("compacted: %v", l.id != id)
		}
		for _, l := range []*Log{l, openTest(t, d.restart(true))} {
			wantRecord(t, l, "new.example.org", "while it is compacted")
			wantRecord(t, l, "kept.example.org", "kept")
			wantRecord(t, l, "gone.example.org", "")
		}
	}
}
