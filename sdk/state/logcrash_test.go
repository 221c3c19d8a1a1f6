package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

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
