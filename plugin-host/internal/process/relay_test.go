package process

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func TestCrashReportBeginsWithReason(t *testing.T) {
	r := newRelay(slog.New(slog.DiscardHandler), nil)
	r.run(strings.NewReader("hello\npanic: no such thing\n" + strings.Repeat("stack\n", 100)))
	if lines := r.lines(); len(lines) != keptLines+1 || lines[0] != "panic: no such thing" || lines[1] != "stack" {
		t.Errorf("%q", lines)
	}
}

// A text log escapes what is in a value: an escape would be escaped again.
func TestLineEndsInRecordAreNotEscapedTwice(t *testing.T) {
	var log logtest.Log
	newRelay(slog.New(slog.NewTextHandler(&log, nil)), nil).run(strings.NewReader(`{"@level":"error","@message":"call\npanicked","stack":"goroutine 7:\nmain.f()\n\t/src/main.go:7\n"}` + "\n"))
	if got := log.String(); strings.Contains(got, `\`) || !strings.Contains(got, `msg="call panicked" stack="goroutine 7: main.f()  /src/main.go:7"`) {
		t.Error(got)
	}
}

// In plain lines, in records, and in the crash report.
func TestHiddenValuesReachNoLog(t *testing.T) {
	var log logtest.Log
	r := newRelay(log.Logger(), nil)
	r.hidden.Add("open-sesame", "s")
	r.hidden.Add("rotated-sesame", "open-sesame")
	r.run(strings.NewReader("with open-sesame\n" +
		`{"@level":"info","@message":"rotated-sesame\nopen-sesame","key":"open-sesame","nested":{"key":["rotated-sesame"]}}` + "\npanic: open-sesame\n"))
	said := log.String() + strings.Join(r.lines(), "\n")
	if strings.Contains(said, "sesame") || strings.Count(said, "(secret)") < 8 {
		t.Error(said)
	}
}

// flood is a provider that never stops writing lines of that length.
type flood struct{ line, read, most int }

func (f *flood) Read(p []byte) (int, error) {
	if f.read > f.most {
		return 0, io.EOF
	}
	line := strings.Repeat("x", f.line-1) + "\n"
	n := copy(p, strings.Repeat(line, len(p)/len(line)+1))
	f.read += n
	return n, nil
}

func TestFloodIsReadSlowly(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 270 MB")
	}
	for line, speed := range map[int]int{10: 200_000, 1000: 12 << 20, 20_000: 12 << 20} { // bytes a second
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Log
			began := time.Now()
			newRelay(log.Logger(), nil).run(&flood{line: line, most: speed * 10})
			took := time.Since(began)
			if took < 5*time.Second || took > 40*time.Second {
				t.Errorf("lines of %d bytes: %d bytes were read within %s", line, 10*speed, took)
			}
			lines, notes := strings.Count(log.String(), "provider output"), strings.Count(log.String(), "too fast")
			if most := 200 + 5*int(took.Seconds()+1); lines > most || lines < 200 && line < 20_000 {
				t.Errorf("lines of %d bytes: %d were logged in %s", line, lines, took)
			}
			if most := 2 + int(took/noteEvery); notes > most || notes == 0 && line < 20_000 {
				t.Errorf("lines of %d bytes: %d notes in %s", line, notes, took)
			}
		})
	}
}

func TestFloodOfStandardOutputIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const speed = int64(floodBytes * time.Second / floodPause)
		began := time.Now()
		if n := drain(&flood{line: 1000, most: int(speed) * 10}, nil); n < speed*10 {
			t.Errorf("only %d bytes were read", n)
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// The lines that are dropped are counted, those after the last that is logged as well.
func TestDroppedLinesAreCounted(t *testing.T) {
	var log logtest.Log
	newRelay(log.Logger(), nil).run(strings.NewReader(strings.Repeat("line\n", 1000)))
	if got := log.String(); strings.Count(got, "line=line") != 200 || !strings.HasSuffix(got, "dropped lines\" lines=800\n") {
		t.Error(got[max(0, len(got)-500):])
	}
}

func TestPanicIsLoggedWholeAfterFlood(t *testing.T) {
	var log logtest.Log
	newRelay(log.Logger(), nil).run(strings.NewReader(strings.Repeat("line\n", 1000) + "panic: oh\n\n" +
		strings.Repeat("main.f()\n\t/src/main.go:7\n", 100) + "exit status 2\n" + strings.Repeat("panic: oh\n", 10_000)))
	got := log.String()
	if strings.Count(got, "main.f()") != 100 || !strings.Contains(got, "exit status 2") {
		t.Errorf("%d frames of the stack: %s", strings.Count(got, "main.f()"), got[max(0, len(got)-500):])
	}
	if n := strings.Count(got, "panic: oh"); n > crashLines-150 {
		t.Errorf("%d lines by feigned panics", n)
	}
}

func TestOutputOfEndedProcessIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		close(ended)
		r, began := newRelay(slog.New(slog.DiscardHandler), ended), time.Now()
		r.run(io.MultiReader(&flood{line: 7, most: 1 << 20}, strings.NewReader("\nthe last word\n")))
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		if lines := r.lines(); len(lines) != keptLines || lines[keptLines-1] != "the last word" {
			t.Errorf("%q", lines)
		}
	})
}

func FuzzRelay(f *testing.F) {
	f.Add(`{"@level":1}` + "\n")
	f.Add("\n\n{\n" + strings.Repeat("x", 10_000))
	f.Fuzz(func(t *testing.T, text string) {
		r := newRelay(slog.New(slog.DiscardHandler), nil)
		r.run(strings.NewReader(text))
		for _, line := range r.lines() {
			if len(line) > 1200 || strings.ContainsAny(line, "\n\x00\a") {
				t.Errorf("a line of %d bytes: %.40q", len(line), line)
			}
		}
	})
}
