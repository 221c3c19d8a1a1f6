package process

import (
	"log/slog"
	"strings"
	"testing"
)

func TestACrashReportBeginsWithTheReasonHoweverLongTheStack(t *testing.T) {
	r := newRelay(slog.New(slog.DiscardHandler))
	r.run(strings.NewReader("hello\npanic: no such thing\n" + strings.Repeat("stack\n", 100)))
	if lines := r.lines(); len(lines) != keptLines+1 || lines[0] != "panic: no such thing" || lines[1] != "stack" {
		t.Errorf("%q", lines)
	}
}

func FuzzRelay(f *testing.F) {
	f.Add(`{"@level":1}` + "\n")
	f.Add("\n\n{\n" + strings.Repeat("x", 10_000))
	f.Fuzz(func(t *testing.T, text string) {
		r := newRelay(slog.New(slog.DiscardHandler))
		r.run(strings.NewReader(text))
		for _, line := range r.lines() {
			if len(line) > 1200 || strings.ContainsAny(line, "\n\x00\a") {
				t.Errorf("a line of %d bytes: %.40q", len(line), line)
			}
		}
	})
}
