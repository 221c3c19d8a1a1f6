package figures

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	release = flag.String("release", "", "record the figures of -page as those of this release")
	page    = flag.String("page", "../../../docs/figures.md", "the page of figures")
)

// TestReleases records a release where one is named (make bench NAME=releases), and checks that the
// page can be recorded.
func TestReleases(t *testing.T) {
	path := *page
	if *release == "" {
		path = filepath.Join(t.TempDir(), "figures.md")
		if err := os.WriteFile(path, []byte(text(t, *page)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changed, err := RecordRelease(path, *release)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range changed {
		t.Logf("differs by more than a tenth: %s", row)
	}
}

func TestReleaseIsAColumn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.md")
	begin, end := marks(releasesCommand)
	beginBench, endBench := marks("make bench")
	write := func(start, memory, releases string) {
		t.Helper()
		content := "# Figures\n" + beginBench + "| figure, client on the same cores (2026-01-01, busy) | median | p99 |\n|---|---|---|\n| start | " + start + " ms | 9 ms |\n| … memory | " + memory + " MiB | - |\n" + endBench +
			begin + releases + end + "| goal | 5 |\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table := func() string {
		_, rest, _ := strings.Cut(text(t, path), begin)
		rest, after, _ := strings.Cut(rest, end)
		if after != "| goal | 5 |\n" {
			t.Errorf("what follows the table became %q", after)
		}
		return rest
	}
	write("10", "20", "")
	if changed, err := RecordRelease(path, "0.1.0"); err != nil || len(changed) > 0 {
		t.Fatalf("the first release: %q, %v", changed, err)
	}
	write("10.9", "23", table())
	for range 2 { // the same release again replaces its column
		changed, err := RecordRelease(path, "0.2.0")
		if want := []string{"figure: start … memory: 23 MiB; -, before 20 MiB; -"}; err != nil || !slices.Equal(changed, want) {
			t.Errorf("changed: %q, %v, want %q", changed, err, want)
		}
	}
	want := "\n| figure | 0.1.0 | 0.2.0 |\n|---|---|---|\n| figure: start | 10 ms; 9 ms | 10.9 ms; 9 ms |\n| figure: start … memory | 20 MiB; - | 23 MiB; - |\n\n"
	if got := table(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(path, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := RecordRelease(path, "0.3.0"); err == nil {
		t.Error("a page without marks is accepted")
	}
}
