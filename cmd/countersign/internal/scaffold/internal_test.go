package scaffold

import (
	"strings"
	"testing"
	"testing/fstest"

	countersign "github.com/countersign-dev/countersign"
)

// The hashes are those that the go command checks: of the files as the program's own build
// recorded it, of go.mod as computed here.
func TestReleaseIsRequiredWithBothHashes(t *testing.T) {
	files := fstest.MapFS{"go.mod": {Data: []byte("module github.com/google/uuid\n")}, "go.sum": {}}
	sdk, err := published(files, "v1.2.3", "h1:files")
	if err != nil {
		t.Fatal(err)
	}
	if want := "require " + module + " v1.2.3\n"; sdk.requirement() != want {
		t.Errorf("go.mod has %q", sdk.requirement())
	}
	// go.sum has it for github.com/google/uuid v1.6.0.
	const mod = "h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo="
	if want := module + " v1.2.3 h1:files\n" + module + " v1.2.3/go.mod " + mod + "\n"; string(sdk.sum) != want {
		t.Errorf("go.sum has\n%s, want\n%s", sdk.sum, want)
	}
	if sdk.note() != "" || sdk.release() != "v1.2.3" {
		t.Errorf("note %q, release %q", sdk.note(), sdk.release())
	}
}

// A carried module without a requirement or a hash would be looked up at the first build.
func TestCopyHasAllDependencies(t *testing.T) {
	sdk, err := copyOf(countersign.ProviderSource())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range carried {
		if !strings.Contains(sdk.requirement(), "\t"+path+" v") || !strings.Contains("\n"+string(sdk.sum), "\n"+path+" v") {
			t.Errorf("%s is missing:\n%s%s", path, sdk.requirement(), sdk.sum)
		}
	}
}
