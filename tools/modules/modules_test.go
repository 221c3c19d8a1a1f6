// The tests release the working tree as v0.1.0 and use it as others would. They compile six
// programs from modules, two minutes of a core: `make check-modules` runs them.
package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	house   = "github.com/countersign-dev/countersign"
	version = "v0.1.0"
)

// stranger is somebody who has the go command and a module proxy with the release, and
// nothing of this repository.
type stranger struct {
	proxy, bin string
	env        []string
}

var shared struct {
	stranger
	err error
}

func TestMain(m *testing.M) {
	temp, err := os.MkdirTemp("", "countersign-modules-")
	if err == nil {
		shared.stranger, shared.err = newStranger(temp)
	}
	code := m.Run()
	if err := errors.Join(err, os.RemoveAll(temp)); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// newStranger releases the working tree. Own modules of that version may never reach the
// module cache of the user, whose downloads are copied instead.
func newStranger(temp string) (stranger, error) {
	s := stranger{proxy: filepath.Join(temp, "proxy"), bin: filepath.Join(temp, "bin")}
	known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		return s, err
	}
	_, err = release(filepath.Join("..", ".."), version, s.proxy)
	env := strings.Split(string(known), "\n")
	s.env = append(os.Environ(), "GOWORK=off", "GOBIN="+s.bin, "GOMODCACHE="+filepath.Join(temp, "modules"), "GOFLAGS="+env[2]+" -modcacherw",
		"GOPROXY=file://"+s.proxy+",file://"+env[0]+"/cache/download,"+env[1], "GOSUMDB=off", "GOTOOLCHAIN=local", "PATH="+s.bin+":"+os.Getenv("PATH"))
	return s, err
}

func theStranger(t *testing.T) stranger {
	t.Helper()
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.stranger
}

// run returns the standard output of a command that has to succeed.
func (s stranger) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := s.command(dir, name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func (s stranger) command(dir, name string, args ...string) *exec.Cmd {
	if slices.Contains(installed, name) {
		name = filepath.Join(s.bin, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, s.env
	return cmd
}

const embedder = `package main

import (
	"context"
	"log"

	"` + house + `/sdk/agent"
)

func main() { log.Fatal(agent.Run(context.Background(), agent.Config{})) }
`

func TestAnEmbedderGetsTheSDKAndNoCloud(t *testing.T) {
	s, dir := theStranger(t), t.TempDir()
	s.run(t, dir, "go", "mod", "init", "example.com/embedder")
	write(t, filepath.Join(dir, "main.go"), embedder)
	s.run(t, dir, "go", "get", house+"/sdk/agent@"+version)
	s.run(t, dir, "go", "build", "-o", os.DevNull, ".")
	s.run(t, dir, "go", "mod", "tidy")
	s.run(t, dir, "go", "vet", ".")
	checkMod(t, dir)
	sum := read(t, filepath.Join(dir, "go.sum"))
	for _, foreign := range []string{"k8s.io/", "cloud.google.com/", "google.golang.org/api ", "istio.io/", "aws", "azure", "hashicorp/vault", "smallstep", "miekg/", "prometheus/"} {
		if strings.Contains(sum, foreign) {
			t.Errorf("go.sum of an embedder names %s:\n%s", foreign, sum)
		}
	}
}

// checkMod: the requirement in go.mod is the release, and nothing is replaced.
func checkMod(t *testing.T, dir string) {
	t.Helper()
	mod := read(t, filepath.Join(dir, "go.mod"))
	if !regexp.MustCompile(`(?m)^(require|\t) ?`+regexp.QuoteMeta(house+" "+version)+`$`).MatchString(mod) || strings.Contains(mod, "replace") {
		t.Errorf("go.mod:\n%s", mod)
	}
}

// installed are all programs of a release.
var installed = []string{
	"countersign", "countersign-discovery",
	"countersign-provider-citadel", "countersign-provider-file", "countersign-provider-google", "countersign-provider-step", "countersign-provider-vault",
}

func TestEachProgramIsInstalledUnderItsNameAndKnowsItsVersion(t *testing.T) {
	s, dir := theStranger(t), t.TempDir()
	for _, program := range installed {
		s.run(t, dir, "go", "install", "-ldflags=-s -w", mainOf(program)+"@"+version)
		said, _ := s.command(dir, program, "version").CombinedOutput() // a provider refuses to run by hand, and says what it is
		if !regexp.MustCompile(`^\S+ 0\.1\.0 `).Match(said) {
			t.Errorf("%s says %q", program, said)
		}
	}
	entries, err := os.ReadDir(s.bin)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, installed) {
		t.Errorf("installed: %q, %v", names, err)
	}
}

func mainOf(program string) string {
	switch name, provider := strings.CutPrefix(program, "countersign-provider-"); {
	case provider:
		return house + "/providers/" + name + "/cmd/" + program
	case program == "countersign":
		return house + "/plugin-host/cmd/" + program
	}
	return house + "/control-plane/cmd/" + program
}

// What `provider new` prints is what its reader does next.
func TestANewProviderBuildsOnTheRelease(t *testing.T) {
	s, dir := theStranger(t), t.TempDir()
	s.run(t, dir, "go", "install", "-ldflags=-s -w", mainOf("countersign")+"@"+version)
	said := s.run(t, dir, "countersign", "provider", "new", "acme")
	var script strings.Builder
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "  ") {
			script.WriteString(line)
		}
	}
	if said := s.run(t, dir, "sh", "-e", "-c", script.String()); !strings.Contains(said, "acme") {
		t.Errorf("%s\n%s", script.String(), said)
	}
	checkMod(t, filepath.Join(dir, "countersign-provider-acme"))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
