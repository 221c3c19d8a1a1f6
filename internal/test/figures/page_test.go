package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunIsWrittenBetweenPageMarks(t *testing.T) {
	page := filepath.Join(t.TempDir(), "figures.md")
	beginMark, endMark := marks("make x")
	before := "# Figures\n" + beginMark + "old\n" + endMark + "Goals\n"
	if err := os.WriteFile(page, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no figures")
	if err := Write(page, "make x", func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a run that fails: %v", err)
	}
	if got := text(t, page); got != before {
		t.Errorf("a run that fails leaves %q", got)
	}
	if err := Write(page, "make x", func() error { fmt.Println("| new |"); return nil }); err != nil {
		t.Fatal(err)
	}
	got := text(t, page)
	if !strings.HasPrefix(got, "# Figures\n"+beginMark+"\nMeasured on ") || !strings.HasSuffix(got, "\n| new |\n\n"+endMark+"Goals\n") || strings.Contains(got, "old") {
		t.Errorf("got %q", got)
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(page, "make x", func() error { t.Error("a page without marks is measured for"); return nil }); err == nil {
		t.Error("a page without marks is accepted")
	}
}

func TestFiguresPageHasMarksOfEachCommand(t *testing.T) {
	page := text(t, "../../../docs/figures.md")
	for _, command := range []string{"make bench", "make bench NAME=kubernetes", "make bench NAME=fleet", "make bench NAME=door", "make bench NAME=istio", "make bench NAME=on-demand", "make bench NAME=caddy", releasesCommand} {
		begin, end := marks(command)
		if strings.Count(page, begin) != 1 || strings.Count(page, end) != 1 {
			t.Errorf("docs/figures.md has not the marks of %s", command)
		}
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
