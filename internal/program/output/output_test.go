package output

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func plain(text string) string { return text }

func written(texts ...string) *Tail {
	t := &Tail{}
	for _, text := range texts {
		_, _ = t.Write([]byte(text))
	}
	return t
}

func TestLastLinesAreReadable(t *testing.T) {
	tail := written("before\n")
	mark := tail.Mark()
	_, _ = tail.Write([]byte("a plain line\r\n\n" + `{"@level":"warn","@message":"asked twice","url":"https://ca","n":2,"why":"no answer"}` + "\nhalf\x1b[2J"))
	want := []string{"a plain line", `warn: asked twice n=2 url=https://ca why="no answer"`, `half\x1b[2J`}
	if got := tail.Since(mark, plain); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := tail.Since(tail.Mark(), plain); len(got) > 0 {
		t.Errorf("nothing was written since, and there is %q", got)
	}
}

func TestOnlyLastTenLinesAreShown(t *testing.T) {
	tail := &Tail{}
	for i := range 1000 {
		fmt.Fprintf(tail, "line %d\n", i)
	}
	if got := tail.Since(0, plain); len(got) != 10 || got[9] != "line 999" {
		t.Errorf("got %q", got)
	}
}

func TestStackOfPanicIsShownWhole(t *testing.T) {
	stack := "goroutine 7 [running]:\\nmain.open\\n\\t/src/main.go:31 +0x1d" + strings.Repeat("\\nmain.f\\n\\t/src/main.go:7", 20)
	got := written("starting\n", `{"@level":"error","@message":"call panicked","panic":"index out of range","stack":"`+stack+`"}`+"\n", "bye\n").Since(0, plain)
	if len(got) != 45 || got[0] != `error: call panicked panic="index out of range"` || got[3] != "        /src/main.go:31 +0x1d" || got[44] != "bye" {
		t.Errorf("%d lines: %q", len(got), got)
	}
	got = written("starting\npanic: boom\n\ngoroutine 1 [running]:\n", strings.Repeat("main.f()\n", 300)).Since(0, plain)
	if len(got) != maxStack || got[0] != "panic: boom" || got[1] != "goroutine 1 [running]:" {
		t.Errorf("%d lines: %q", len(got), got[:3])
	}
}

func TestFloodIsBoundedAndSecretsAreHidden(t *testing.T) {
	tail := &Tail{}
	for range 100 {
		_, _ = tail.Write([]byte(strings.Repeat("x", 100_000)))
	}
	_, _ = tail.Write([]byte("\nthe password is hunter22\n"))
	if len(tail.text) > 2*maxKept {
		t.Errorf("%d bytes are kept", len(tail.text))
	}
	got := tail.Since(0, func(text string) string { return strings.ReplaceAll(text, "hunter22", "(secret)") })
	if len(got) != 2 || len(got[0]) > 256 || got[1] != "the password is (secret)" {
		t.Errorf("got %q", got)
	}
}
