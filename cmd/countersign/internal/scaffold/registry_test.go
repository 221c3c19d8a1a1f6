package scaffold_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
)

// library is the name of the copied library: in registries, anybody may own it.
const library = "countersign-provider"

func newProject(t *testing.T, lang string) string {
	t.Helper()
	dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Lang: lang, Dir: filepath.Join(t.TempDir(), "new")})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func textOf(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestNodeProjectTakesLibraryFromItsFolder(t *testing.T) {
	dir := newProject(t, "node")
	var project struct{ Dependencies map[string]string }
	var lock struct {
		Packages map[string]struct {
			Name, Resolved string
			Link           bool
		}
	}
	for name, into := range map[string]any{"package.json": &project, "package-lock.json": &lock} {
		if err := json.Unmarshal(textOf(t, dir, name), into); err != nil {
			t.Fatal(err)
		}
	}
	if got := project.Dependencies[library]; got != "file:"+library {
		t.Errorf("package.json depends on %q", got)
	}
	for path, locked := range lock.Packages {
		if (path == library || strings.HasSuffix(path, "/"+library)) && strings.Contains(locked.Resolved, "://") {
			t.Errorf("%s is locked to %s", path, locked.Resolved)
		}
	}
	if locked := lock.Packages["node_modules/"+library]; !locked.Link || locked.Resolved != library {
		t.Errorf("locked to %+v", locked)
	}
}

// The library is part of the project's own package: no requirement names it.
func TestPythonProjectRequiresNoPackageOfLibrarysName(t *testing.T) {
	dir := newProject(t, "python")
	required := regexp.MustCompile(`(?mi)^\s*"?countersign[-_.]+provider(\[|\s|"|=|<|>|~|!|@|$)`)
	for _, name := range []string{"pyproject.toml", "requirements.in", "requirements.txt"} {
		if found := required.Find(textOf(t, dir, name)); found != nil {
			t.Errorf("%s requires %s", name, found)
		}
	}
	if !strings.Contains(string(textOf(t, dir, "pyproject.toml")), `package-dir = {countersign_provider = "countersign-provider/src/countersign_provider"}`) {
		t.Error("pyproject.toml does not contain the library")
	}
}

func TestRustProjectTakesLibraryFromItsFolder(t *testing.T) {
	dir := newProject(t, "rust")
	line := regexp.MustCompile(`(?m)^countersign-provider = .*$`).FindString(string(textOf(t, dir, "Cargo.toml")))
	if !strings.Contains(line, `path = "countersign-provider"`) || strings.Contains(line, "version") {
		t.Errorf("Cargo.toml says %s", line)
	}
	for locked := range strings.SplitSeq(string(textOf(t, dir, "Cargo.lock")), "[[package]]") {
		if strings.Contains(locked, `name = "`+library) && strings.Contains(locked, "source =") {
			t.Errorf("Cargo.lock has %s", locked)
		}
	}
}

func TestNoFileOfProjectInstallsLibraryFromRegistry(t *testing.T) {
	install := regexp.MustCompile(`(npm (i|install|add)|npx|pip3? install|cargo (add|install)|uv add|poetry add)[^\n]* ["']?countersign[-_]provider`)
	for _, lang := range scaffold.Languages() {
		if lang == scaffold.Go {
			continue
		}
		dir := newProject(t, lang)
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				if found := install.Find(textOf(t, path)); found != nil {
					t.Errorf("%s: %s", path, found)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
