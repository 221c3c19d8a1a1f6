package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

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

// unreadable is a file whose disk is away.
type unreadable struct{ diskFile }

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

// A disk that cannot be read may be readable later; a record that is cut off is damaged.
func TestErrorOfTheDiskIsNotDamage(t *testing.T) {
	l := openTest(t, newMemDisk(1))
	storeTest(t, l, "a.example.org", "content")
	file := l.file.(*memFile)
	l.file = unreadable{file}
	if _, err := l.Load(t.Context(), "a.example.org"); ca.ReasonFor(err) != ca.Unavailable || !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	l.file = file
	wantRecord(t, l, "a.example.org", "content")
	file.content = file.content[:len(file.content)-1]
	if _, err := l.Load(t.Context(), "a.example.org"); err == nil || ca.ReasonFor(err) == ca.Unavailable {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Load(t.Context(), "a.example.org"); ca.ReasonFor(err) != ca.Unavailable {
		t.Error(err)
	}
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
