package scaffold_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/scaffold"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		"an old folder":  {scaffold.Plan{Name: "acme", Dir: "old"}, "old already exists"},
		"a file":         {scaffold.Plan{Name: "acme", Dir: "file"}, "file already exists"},
		"a dangling end": {scaffold.Plan{Name: "acme", Dir: "link"}, "link already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_ = os.Mkdir("old", 0o755)
			_ = os.WriteFile("file", nil, 0o600)
			_ = os.Symlink("nowhere", "link")
			c.plan.SDK = scaffold.SDK{Version: "v1.0.0"}
			if _, err := scaffold.Write(c.plan); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir("."); len(left) != 3 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestSDKMustBeAFolder(t *testing.T) {
	if _, err := scaffold.SourceSDK(t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no sdk in") || !strings.Contains(err.Error(), "--sdk") {
		t.Errorf("got %v", err)
	}
	// A published version needs no folder.
	dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Dir: filepath.Join(t.TempDir(), "a"), SDK: scaffold.SDK{Version: "v1.2.3"}})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.Contains(string(mod), "countersign v1.2.3\n") || strings.Contains(string(mod), "replace") {
		t.Errorf("go.mod: %s %v", mod, err)
	}
}

func TestREADMESaysHowToLeaveTheClone(t *testing.T) {
	dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Dir: filepath.Join(t.TempDir(), "a"), SDK: scaffold.SDK{Version: "v0.0.0", Replace: "/clone"}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	const module = "github.com/countersign-dev/countersign"
	if err != nil || !strings.Contains(string(page), "    go mod edit -dropreplace "+module+"\n    go get "+module+"@latest\n") {
		t.Errorf("README.md: %s %v", page, err)
	}
}
