//go:build check

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

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/schema"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// offlineCommand is a command of go's without network, workspace and changes of go.mod.
func offlineCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	proctest.NeedsProcess(t)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	flags := "GOFLAGS=-mod=readonly " + strings.Join(programs.Flags(), " ")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", flags, "GOTOOLCHAIN=local")
	return cmd
}

// offline runs such a command, which must succeed.
func offline(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := offlineCommand(t, dir, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// mustWaitForCA fails unless the tests of a new provider fail for its CA in memory alone.
func mustWaitForCA(t *testing.T, dir string) {
	t.Helper()
	out, err := offlineCommand(t, dir, "test", "-vet=off", "./...").CombinedOutput()
	const want = ": authority.go: the function open signs with a CA in memory, which no peer trusts: put your CA's client in its place (step 4 of docs/write-a-provider.md)\n"
	if err == nil || strings.Count(string(out), want) != 1 || strings.Count(string(out), "--- FAIL") != 1 {
		t.Errorf("go test of a new provider: %v\n%s", err, out)
	}
}

// The provider builds offline as it is written, its tests wait for a CA, its settings are those
// on its page, and it signs under the host. The copy has what its neighbours need, too.
func TestNewProviderBuildsOfflineAndSigns(t *testing.T) {
	base := t.TempDir()
	dir, err := scaffold.Write(scaffold.Plan{Name: "4-acme", Dir: filepath.Join(base, "new"), Module: "example.org/me/acme", SDK: carriedSDK(t)})
	if err != nil {
		t.Fatal(err)
	}
	unformatted, err := exec.Command("gofmt", "-l", dir).Output()
	if err != nil || len(unformatted) > 0 {
		t.Errorf("gofmt: %s %v", unformatted, err)
	}
	binary := filepath.Join(dir, "countersign-provider-4-acme")
	offline(t, dir, "vet", "./...")
	mustWaitForCA(t, dir)
	offline(t, dir, "test", "-run", "WrongSettings", "./...")
	offline(t, dir, "build", "-o", binary, ".")
	modulesAreKnown(t, dir)
	const below = "github.com/countersign-dev/countersign/sdk/provider/"
	offline(t, dir, "build", below+"filewatch", below+"rest", below+"testkit")
	for _, system := range []string{"darwin", "windows"} {
		t.Setenv("GOOS", system)
		offline(t, dir, "list", "-deps", ".", below+"filewatch", below+"rest", below+"testkit")
	}
	t.Setenv("GOOS", "")
	for _, file := range []string{"README.md", ".gitignore", ".github/workflows/ci.yml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Contains(text, []byte("countersign-provider-4-acme")) || bytes.Contains(text, []byte("<<")) {
			t.Errorf("%s: %s, %v", file, text, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := pluginhost.Open(ctx, pluginhost.Options{RuntimeDir: proctest.Folder(t)}, pluginhost.Entry{Name: "4-acme", Path: binary})
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

// modulesAreKnown fails unless "go list -m all" and "go doc" work without a change of go.sum: both
// read every go.mod of the graph, of which a build reads only some. They may download these.
func modulesAreKnown(t *testing.T, dir string) {
	t.Helper()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "-m", "all"}, "github.com/hashicorp/go-plugin v"},
		{[]string{"doc", "github.com/countersign-dev/countersign/sdk/ca.SignRequest"}, "SubjectID"},
	} {
		cmd := offlineCommand(t, dir, c.args...)
		cmd.Env = append(cmd.Env, "GOPROXY="+os.Getenv("GOPROXY"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("go %v: %v\n%s", c.args, err, out)
		}
	}
}

func TestNewProviderBuildsOnClone(t *testing.T) {
	clone, err := scaffold.SourceSDK("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := scaffold.Write(scaffold.Plan{Name: "acme", Dir: filepath.Join(t.TempDir(), "new"), SDK: clone})
	if err != nil {
		t.Fatal(err)
	}
	offline(t, dir, "vet", "./...")
	modulesAreKnown(t, dir)
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
	var kit strings.Builder
	if err := schema.WriteKit(&kit, settings); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kit.yaml")); err != nil || string(text) != kit.String() {
		t.Errorf("kit.yaml is\n%s\n%v, `provider kit` writes\n%s", text, err, kit.String())
	}
}
