package scaffold_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

func TestRefusedPlanLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		plan scaffold.Plan
		want string
	}{
		"no name":        {scaffold.Plan{}, `"" is not a valid provider name`},
		"a capital":      {scaffold.Plan{Name: "Acme"}, `"Acme" is not a valid provider name`},
		"a path":         {scaffold.Plan{Name: "../acme"}, "is not a valid provider name"},
		"too long":       {scaffold.Plan{Name: strings.Repeat("a", 64)}, "1 to 63"},
		"a line end":     {scaffold.Plan{Name: "acme", Module: "example.org/a\nreplace x => y"}, "is not a module path"},
		"an empty part":  {scaffold.Plan{Name: "acme", Module: "example.org//a"}, "is not a module path"},
		"a language":     {scaffold.Plan{Name: "acme", Lang: "cobol"}, `no template for "cobol": use one of go, node, python, rust`},
		"no Go module":   {scaffold.Plan{Name: "acme", Lang: "python", Module: "example.org/a"}, "leave out --module"},
		"an old folder":  {scaffold.Plan{Name: "acme", Dir: "old"}, "old already exists"},
		"a file":         {scaffold.Plan{Name: "acme", Dir: "file"}, "file already exists"},
		"a dangling end": {scaffold.Plan{Name: "acme", Dir: "link"}, "link already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_ = os.Mkdir("old", 0o755)
			_ = os.WriteFile("file", nil, 0o600)
			_ = os.Symlink("nowhere", "link")
			c.plan.SDK = carriedSDK(t)
			if _, err := scaffold.Write(c.plan); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir("."); len(left) != 3 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func carriedSDK(t *testing.T) scaffold.SDK {
	t.Helper()
	sdk, err := scaffold.FindSDK()
	if err != nil {
		t.Fatal(err)
	}
	return sdk
}

func TestSDKMustBeAFolder(t *testing.T) {
	if _, err := scaffold.SourceSDK(t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no sdk in") || !strings.Contains(err.Error(), "--sdk") {
		t.Errorf("got %v", err)
	}
}

// With an sdk from a folder, the README explains how to take a release instead.
func TestREADMEExplainsHowToTakeARelease(t *testing.T) {
	clone, err := scaffold.SourceSDK("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/countersign-dev/countersign"
	const steps = "    go mod edit -dropreplace " + module + "\n    go get " + module + "@latest\n"
	for name, c := range map[string]struct {
		sdk  scaffold.SDK
		want string
	}{"a clone": {clone, steps}, "a copy": {carriedSDK(t), steps + "    rm -r third_party/countersign\n"}} {
		dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Dir: filepath.Join(t.TempDir(), "a"), SDK: c.sdk})
		if err != nil {
			t.Fatal(err)
		}
		if page, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || !strings.HasSuffix(string(page), c.want) {
			t.Errorf("%s: README.md: %s %v", name, page, err)
		}
	}
}

// The copy is what a build needs: no test, and no file of another module.
func TestCopyHasNoTests(t *testing.T) {
	dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Dir: filepath.Join(t.TempDir(), "a"), SDK: carriedSDK(t)})
	if err != nil {
		t.Fatal(err)
	}
	files, size := 0, int64(0)
	err = filepath.WalkDir(filepath.Join(dir, "third_party"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s is a test", path)
		}
		info, err := entry.Info()
		files, size = files+1, size+info.Size()
		return err
	})
	if err != nil || files < 50 || size > 800_000 {
		t.Errorf("%d files of %d bytes, %v", files, size, err)
	}
}

func TestForeignProjectHasItsOwnNameAndTheLibrary(t *testing.T) {
	for _, lang := range scaffold.Languages() {
		if lang == scaffold.Go {
			continue
		}
		t.Run(lang, func(t *testing.T) {
			dir, err := scaffold.Write(scaffold.Plan{Name: "4-x", Lang: lang, Dir: filepath.Join(t.TempDir(), "new")})
			if err != nil {
				t.Fatal(err)
			}
			var own, library int
			err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				name, _ := filepath.Rel(dir, path)
				if strings.HasPrefix(name, "countersign-provider"+string(filepath.Separator)) {
					library++
					return nil
				}
				own++
				text, err := os.ReadFile(path)
				if strings.Contains(name+string(text), "acme") {
					t.Errorf("%s has the example's name", name)
				}
				return err
			})
			if err != nil || own < 5 || library < 5 {
				t.Errorf("%d files, %d of the library, %v", own, library, err)
			}
		})
	}
}

func TestMissingToolchainIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for lang, want := range map[string]string{"go": "", "node": "npm is not on the PATH: install Node.js", "rust": "cargo is not on the PATH: install Rust", "python": "python3 is not on the PATH: install Python"} {
		if _, missing := (scaffold.Plan{Name: "x", Lang: lang}).Steps(); !strings.HasPrefix(missing, want) || want == "" && missing != "" {
			t.Errorf("%s: %q", lang, missing)
		}
	}
}
