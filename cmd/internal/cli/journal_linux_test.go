package cli

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// What goes to the journal has a priority, and no time of its own.
func TestJournalGetsPriorities(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stream, ok := streamOf(file)
	if !ok {
		t.Fatal("the file has no device and inode")
	}
	write := func(journal, format string) string {
		t.Setenv("JOURNAL_STREAM", journal)
		if err := errors.Join(file.Truncate(0)); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		log := NewLog(file, format, slog.LevelDebug).With("provider", "file").WithGroup("a")
		log.Error("one", "time", "mine", "error", errors.New("two\nthree"))
		log.Warn("four")
		log.Info("five")
		log.Debug("six")
		Complain(file, slog.LevelError, "seven\neight")
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := `<3>level=ERROR msg=one provider=file a.time=mine a.error="two\nthree"
<4>level=WARN msg=four provider=file
<6>level=INFO msg=five provider=file
<7>level=DEBUG msg=six provider=file
<3>seven
<3>eight
`
	if got := write(stream, "text"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := write(stream, "json"); got[:11] != `<3>{"time":` {
		t.Errorf("JSON: %s", got)
	}
	for _, other := range []string{"", "1:2"} {
		if got := write(other, "text"); got[:5] != "time=" {
			t.Errorf("JOURNAL_STREAM=%q: %s", other, got)
		}
	}
}
