package state

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
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

// history is what the records of each name may be: what was acknowledged last, and what may be there
// as well since it was not.
type history map[string][]string

// run does some random writes until the disk ends, and returns what may be there.
func (h history) run(l *Log, random *mathrand.Rand, writes int) {
	for i := range writes {
		name := fmt.Sprintf("%d.example.org", random.IntN(4))
		content := fmt.Sprintf("%d %s", i, strings.Repeat("x", random.IntN(300)))
		var err error
		if random.IntN(5) == 0 {
			content = ""
			err = l.Delete(context.Background(), name)
		} else {
			err = l.Store(context.Background(), entryOf(name), recordOf(content))
		}
		if err == nil {
			h[name] = []string{content}
		} else {
			h[name] = append(h.of(name), content)
		}
	}
}

func (h history) of(name string) []string {
	if h[name] == nil {
		return []string{""}
	}
	return h[name]
}

func (h history) check(t *testing.T, l *Log) {
	t.Helper()
	for i := range 4 {
		name := fmt.Sprintf("%d.example.org", i)
		r, err := l.Load(context.Background(), name)
		if err != nil || !slices.Contains(h.of(name), string(r.Content)) {
			t.Fatalf("%s: %.20q, %v; want one of %.20q", name, r.Content, err, h.of(name))
		}
		h[name] = []string{string(r.Content)} // by now it is certain
	}
}

// compactSoon makes a log compact after some writes.
func compactSoon(t *testing.T) {
	before := compactFrom
	compactFrom = 2000
	t.Cleanup(func() { compactFrom = before })
}

func TestNothingAcknowledgedIsLostWhereverTheProcessEnds(t *testing.T) {
	compactSoon(t)
	for _, power := range []bool{false, true} {
		steps := 150
		if testing.Short() {
			steps = 40
		}
		for fails := 1; fails <= steps; fails++ {
			d := newMemDisk(uint64(fails))
			d.dead, d.fails = true, fails
			random := mathrand.New(mathrand.NewPCG(uint64(fails), 2))
			h := history{}
			for range 3 { // it ends again and again
				if l, err := openLog("folder", testKey, d, slog.New(slog.DiscardHandler)); err == nil {
					h.run(l, random, 40)
					_ = l.Close()
				}
				d = d.restart(power)
				l := openTest(t, d)
				h.check(t, l)
				_ = l.Close()
				d.dead, d.step, d.fails = true, 0, fails
			}
		}
	}
}

func TestFailedWriteLeavesLogAsItWas(t *testing.T) {
	compactSoon(t)
	for _, failure := range []error{syscall.ENOSPC, syscall.EIO} {
		for fails := 6; fails <= 120; fails += 2 { // 1 to 5 make the log
			d := newMemDisk(uint64(fails))
			d.fails, d.err = fails, failure
			l := openTest(t, d)
			random := mathrand.New(mathrand.NewPCG(uint64(fails), 3))
			h := history{}
			h.run(l, random, 50)
			l.work.Wait()
			for _, power := range []bool{false, true} {
				again := openTest(t, d.restart(power))
				maps := history{}
				for name, contents := range h {
					maps[name] = slices.Clone(contents)
				}
				maps.check(t, again)
			}
			h.run(l, random, 10)
			for name := range h {
				h[name] = h[name][:1]
			}
			h.check(t, l)
			_ = l.Close()
		}
	}
}

func TestFullDiskIsReportedAndNothingElseHappens(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	storeTest(t, l, "a.example.org", "first")
	for range 20 {
		d.mu.Lock()
		d.fails, d.err = d.step+1, syscall.ENOSPC
		d.mu.Unlock()
		err := l.Store(context.Background(), entryOf("a.example.org"), recordOf("second"))
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "names.log in folder") {
			t.Fatalf("got %v", err)
		}
		wantRecord(t, l, "a.example.org", "first")
	}
	storeTest(t, l, "a.example.org", "third")
	wantRecord(t, openTest(t, d.restart(true)), "a.example.org", "third")
}

func TestManyWritersShareAnFsync(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	d.onSync = func() { time.Sleep(5 * time.Millisecond) }
	before := d.syncs
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			storeTest(t, l, fmt.Sprintf("%d.example.org", i), fmt.Sprint(i))
		})
	}
	all.Wait()
	if n := d.syncs - before; n > 50 {
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

func TestDamageCostsOneRecordAndIsNamed(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	all := map[string]string{}
	for i := range 4 {
		name := fmt.Sprintf("%d.example.org", i)
		all[name] = fmt.Sprintf("content %d", i)
		storeTest(t, l, name, all[name])
	}
	whole := slices.Clone(d.files[logName].content)
	first := int(l.index.places["0.example.org"].at)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		spoiled := slices.Clone(whole)
		spoiled[i] ^= 1 << (i % 8)
		var text bytes.Buffer
		d.files[logName] = &memFile{d, spoiled, spoiled}
		again, err := openLog("folder", testKey, d, slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatalf("with byte %d changed: %v", i, err)
		}
		lost := 0
		for name, content := range all {
			if r, err := again.Load(context.Background(), name); err != nil || string(r.Content) != content {
				lost++
				if len(r.Content) > 0 {
					t.Errorf("with byte %d changed, %s is %q", i, name, r.Content)
				}
			}
		}
		if want := min(1, max(0, i-first+1)); lost != want || !strings.Contains(text.String(), "cannot be used") {
			t.Errorf("with byte %d changed, %d records are lost, want %d; logged %q", i, lost, want, text.String())
		}
		storeTest(t, again, "new.example.org", "new")
		wantRecord(t, again, "new.example.org", "new")
		_ = again.Close()
	}
}

func TestDamageWhileLogIsOpenIsAnErrorOfThatName(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	storeTest(t, l, "a.example.org", "first")
	storeTest(t, l, "b.example.org", "second")
	p := l.index.places["a.example.org"]
	for i := p.at; i < p.at+int64(p.size); i++ {
		d.files[logName].content[i] ^= 1
		r, err := l.Load(context.Background(), "a.example.org")
		if err == nil || len(r.Content) > 0 || !strings.Contains(err.Error(), `record "a.example.org" at byte`) {
			t.Errorf("with byte %d changed: %v, %v", i, r, err)
		}
		d.files[logName].content[i] ^= 1
	}
	wantRecord(t, l, "a.example.org", "first")
	wantRecord(t, l, "b.example.org", "second")
}

func TestTornTailLosesLastRecordAtMost(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	storeTest(t, l, "a.example.org", "first")
	storeTest(t, l, "b.example.org", "second")
	before := l.end
	storeTest(t, l, "b.example.org", "third")
	whole := slices.Clone(d.files[logName].content)
	for size := before; size < int64(len(whole)); size++ {
		for _, rest := range [][]byte{nil, make([]byte, len(whole)-int(size))} {
			torn := append(slices.Clone(whole[:size]), rest...)
			d.files[logName] = &memFile{d, torn, torn}
			again := openTest(t, d)
			wantRecord(t, again, "a.example.org", "first")
			wantRecord(t, again, "b.example.org", "second")
			storeTest(t, again, "c.example.org", "fourth")
			_ = again.Close()
			again = openTest(t, d)
			wantRecord(t, again, "b.example.org", "second")
			wantRecord(t, again, "c.example.org", "fourth")
			_ = again.Close()
		}
	}
}

// A record is bound to its place and log, and to its name.
func TestMovedOrCopiedRecordIsNotUsed(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	storeTest(t, l, "a.example.org", "first")
	storeTest(t, l, "b.example.org", "other")
	storeTest(t, l, "a.example.org", "third")
	a, b, last := l.index.places["a.example.org"], l.index.places["b.example.org"], l.end
	whole := slices.Clone(d.files[logName].content)
	old := whole[prefixEnd(t, whole):b.at] // the first record of a
	if len(old) != int(a.size) || a.size != b.size {
		t.Fatalf("frames of %d, %d and %d bytes", len(old), a.size, b.size)
	}
	other := newMemDisk(2)
	ol := openTest(t, other)
	storeTest(t, ol, "a.example.org", "first")
	storeTest(t, ol, "a.example.org", "other")
	storeTest(t, ol, "a.example.org", "OTHER")
	foreign := other.files[logName].content
	for title, spoil := range map[string]func(text []byte) []byte{
		"an old record again":        func(text []byte) []byte { return append(text, old...) },
		"an old record in its place": func(text []byte) []byte { copy(text[a.at:], old); return text },
		"two records exchanged": func(text []byte) []byte {
			copy(text[a.at:], whole[b.at:a.at])
			copy(text[b.at:], whole[a.at:])
			return text
		},
		"a record of another log":     func(text []byte) []byte { copy(text[a.at:], foreign[a.at:]); return text },
		"its offset and sum adjusted": func(text []byte) []byte { return append(text, reframed(t, old, last)...) },
	} {
		t.Run(title, func(t *testing.T) {
			text := spoil(slices.Clone(whole))
			d := newMemDisk(3)
			d.files[logName] = &memFile{d, text, text}
			again := openTest(t, d)
			for name, contents := range map[string][]string{"a.example.org": {"third", "first"}, "b.example.org": {"other", ""}} {
				// Of a record that is gone, the one before it is left, as in a log that was cut.
				if r, err := again.Load(context.Background(), name); err == nil && !slices.Contains(contents, string(r.Content)) {
					t.Errorf("%s is %q", name, r.Content)
				}
			}
			if title == "an old record again" || title == "its offset and sum adjusted" {
				wantRecord(t, again, "a.example.org", "third")
			}
		})
	}
}

// prefixEnd returns where the first frame ends.
func prefixEnd(t *testing.T, text []byte) int64 {
	t.Helper()
	f, err := readFrame(bytes.NewReader(text), 0, int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	return f.end()
}

// reframed puts the sealed record of a frame into a frame for another place.
func reframed(t *testing.T, old []byte, at int64) []byte {
	t.Helper()
	encoded, err := encodeFrame(at, old[prefixSize:])
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func TestOtherKeyOpensNoLogAndLeavesIt(t *testing.T) {
	for _, records := range []int{0, 1, 40} {
		d := newMemDisk(1)
		l := openTest(t, d)
		for i := range records {
			storeTest(t, l, fmt.Sprintf("%d.example.org", i), "content")
		}
		_ = l.Close()
		before := slices.Clone(d.files[logName].content)
		other := make([]byte, 64)
		rand.Read(other)
		if _, err := openLog("folder", other, d, slog.New(slog.DiscardHandler)); !errors.Is(err, errForeign) {
			t.Errorf("%d records: %v", records, err)
		}
		if !bytes.Equal(before, d.files[logName].content) {
			t.Errorf("%d records: the log was changed", records)
		}
		wantRecord(t, openTest(t, d), "0.example.org", map[bool]string{true: "content"}[records > 0])
	}
	for _, text := range []string{"", "x", magic, strings.Repeat("\x00", 10_000)} {
		d := newMemDisk(1)
		d.files[logName] = &memFile{d, []byte(text), nil}
		if _, err := openLog("folder", testKey, d, slog.New(slog.DiscardHandler)); !errors.Is(err, errForeign) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

func FuzzLog(f *testing.F) {
	d := newMemDisk(1)
	l := openTest(f, d)
	storeTest(f, l, "a.example.org", "first")
	storeTest(f, l, "b.example.org", "second")
	good := d.files[logName].content
	f.Add(slices.Clone(good))
	f.Add(slices.Clone(good[:len(good)-1]))
	f.Add([]byte(frameMagic))
	f.Add(bytes.Repeat([]byte(frameMagic), 100))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newMemDisk(1)
		d.files[logName] = &memFile{d, slices.Clone(text), nil}
		l, err := openLog("folder", testKey, d, slog.New(slog.DiscardHandler))
		if err != nil {
			if !bytes.Equal(d.files[logName].content, text) {
				t.Error("a foreign file was changed")
			}
			return
		}
		defer l.Close()
		for name, want := range map[string]string{"a.example.org": "first", "b.example.org": "second"} {
			if r, err := l.Load(context.Background(), name); err == nil && len(r.Content) > 0 && string(r.Content) != want {
				t.Errorf("%s is %q", name, r.Content)
			}
		}
		storeTest(t, l, "a.example.org", "third")
		wantRecord(t, l, "a.example.org", "third")
	})
}

// What a failed write has left would be a record again once the bytes before it fit.
func TestRestOfFailedWriteDoesNotComeBack(t *testing.T) {
	d := newMemDisk(1)
	l := openTest(t, d)
	d.fails, d.err = d.step+2, syscall.EIO // its fsync
	var batch []*write
	for _, name := range []string{"a.example.org", "b.example.org"} {
		batch = append(batch, &write{header: header{Record: name}, content: []byte("first")})
	}
	if _, err := l.append(batch); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if _, err := l.append(batch[:1]); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	again := openTest(t, d)
	if entries, _ := again.Index(context.Background()); len(entries) != 1 || entries[0].Name != "a.example.org" {
		t.Errorf("the index is %v", entries)
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
