package scaffold_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/programs"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/scaffold"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/schema"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const repository = "../../../.."

func sdk(t *testing.T) scaffold.SDK {
	t.Helper()
	sdk, err := scaffold.SourceSDK(repository)
	if err != nil {
		t.Fatal(err)
	}
	return sdk
}

// offline runs a command of go's without network, workspace and changes of go.mod.
func offline(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	flags := "GOFLAGS=-mod=readonly " + strings.Join(programs.Flags(), " ")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", flags, "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The provider builds offline as it is written, its tests pass, its settings are what
// its page says, and it signs under the host.
func TestANewProviderBuildsOfflineAndSigns(t *testing.T) {
	base := t.TempDir()
	dir, err := scaffold.Write(scaffold.Plan{Name: "4-acme", Dir: filepath.Join(base, "new"), Module: "example.org/me/acme", SDK: sdk(t)})
	if err != nil {
		t.Fatal(err)
	}
	unformatted, err := exec.Command("gofmt", "-l", dir).Output()
	if err != nil || len(unformatted) > 0 {
		t.Errorf("gofmt: %s %v", unformatted, err)
	}
	binary := filepath.Join(dir, "countersign-provider-4-acme")
	offline(t, dir, "vet", "./...")
	offline(t, dir, "test", "./...")
	offline(t, dir, "build", "-o", binary, ".")
	for _, file := range []string{"README.md", ".gitignore", ".github/workflows/ci.yml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Contains(text, []byte("countersign-provider-4-acme")) || bytes.Contains(text, []byte("<<")) {
			t.Errorf("%s: %s, %v", file, text, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p, err := pluginhost.Open(ctx, pluginhost.Options{RuntimeDir: shortDir(t)}, pluginhost.Entry{Name: "4-acme", Path: binary})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checkPage(t, dir, p.Status())
	key, _ := pki.GenerateKey("")
	id, _ := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := p.CSRSign(ctx, ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: id.SPIFFEID.String(), TTL: time.Hour})
	if err != nil || len(reply.Chain) == 0 {
		t.Errorf("signed: %d bytes, %v", len(reply.Chain), err)
	}
}

func checkPage(t *testing.T, dir string, s pluginhost.Status) {
	t.Helper()
	settings, err := schema.Parse(s.Metadata.SettingsSchema)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := schema.WriteMarkdown(&page, s.Metadata, settings); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "SETTINGS.md")); err != nil || string(text) != page.String() {
		t.Errorf("SETTINGS.md is\n%s\n%v, `provider docs` writes\n%s", text, err, page.String())
	}
}

// shortDir is for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestWhatCannotBeWrittenLeavesNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		plan scaffold.Plan
		want string
	}{
		"no name":        {scaffold.Plan{}, `the name "" is none of a provider`},
		"a capital":      {scaffold.Plan{Name: "Acme"}, `the name "Acme" is none of a provider`},
		"a path":         {scaffold.Plan{Name: "../acme"}, "is none of a provider"},
		"too long":       {scaffold.Plan{Name: strings.Repeat("a", 64)}, "1 to 63"},
		"a line end":     {scaffold.Plan{Name: "acme", Module: "example.org/a\nreplace x => y"}, "is no path"},
		"an empty part":  {scaffold.Plan{Name: "acme", Module: "example.org//a"}, "is no path"},
		"an old folder":  {scaffold.Plan{Name: "acme", Dir: "old"}, "old is there already, and nothing is overwritten"},
		"a file":         {scaffold.Plan{Name: "acme", Dir: "file"}, "file is there already"},
		"a dangling end": {scaffold.Plan{Name: "acme", Dir: "link"}, "link is there already"},
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

func TestTheSDKIsAFolder(t *testing.T) {
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
