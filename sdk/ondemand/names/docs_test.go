package names_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

var row = regexp.MustCompile("^\\| (?:`(.+)`|a (label|name) of (\\d+) bytes) \\| (?:`(.+)`|(the name)|nothing) \\|$")

// The table of names in docs/on-demand.md is what Fold does.
func TestDocumentedNamesAreFoldedAsDocumented(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "docs/on-demand.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Names\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := 0
	for line := range strings.Lines(section) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		rows++
		asked, want := m[1], m[4]
		if m[2] != "" {
			asked = sized(t, m[2], m[3])
		}
		if m[5] != "" {
			want = asked
		}
		if got, _ := names.Fold(asked); got != want {
			t.Errorf("%s: %q", strings.TrimSpace(line), got)
		}
	}
	if rows < 14 {
		t.Errorf("%d rows were found", rows)
	}
}

// sized returns a name of so many bytes, or one with a label of so many.
func sized(t *testing.T, what, bytes string) string {
	n, err := strconv.Atoi(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if what == "label" {
		return strings.Repeat("a", n) + ".example.org"
	}
	return (strings.Repeat(strings.Repeat("a", 49)+".", 6))[:n-4] + ".org"
}
