// The tests release the working tree and use the modules as others do. They compile all
// programs from modules, two minutes of a core: `make check NAME=modules` runs them.
package main

import (
	"errors"
	"fmt"
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
	root    = "../.."
)

// consumer has the go command and a module proxy with the release, and no clone of this
// repository.
type consumer struct {
	proxy, bin string
	mirror     string // a GOPROXY that needs no network
	env        []string
}

// user is shared: what a test downloaded and compiled, the next one has.
var user consumer

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	temp, err := os.MkdirTemp("", "countersign-modules-")
	if err == nil {
		defer os.RemoveAll(temp)
		user, err = newConsumer(temp)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// newConsumer has a module cache of its own: no unpublished version may reach the
// real one. What that one holds of others is copied instead of downloaded.
func newConsumer(temp string) (consumer, error) {
	c := consumer{proxy: filepath.Join(temp, "proxy"), bin: filepath.Join(temp, "bin")}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		return c, err
	}
	real := strings.Split(string(out), "\n")
	c.mirror = "file://" + c.proxy + ",file://" + real[0] + "/cache/download"
	c.env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=local", "GOSUMDB=off", "GOBIN="+c.bin, "PATH="+c.bin+":"+os.Getenv("PATH"),
		"GOMODCACHE="+filepath.Join(temp, "modules"), "GOFLAGS="+real[2]+" -modcacherw",
		"GOPROXY="+c.mirror+","+real[1])
	_, err = release(root, version, c.proxy)
	return c, err
}

// run returns the standard output of a command that has to succeed.
func (c consumer) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := c.command(dir, name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func (c consumer) command(dir, name string, args ...string) *exec.Cmd {
	if slices.Contains(installed, name) {
		name = filepath.Join(c.bin, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, c.env
	return cmd
}

// foreign is what no go.sum of an embedder names.
var foreign = []string{"k8s.io/", "cloud.google.com/", "google.golang.org/api ", "istio.io/", "aws", "azure", "hashicorp/vault", "smallstep", "miekg/", "prometheus/", "spf13/", "go.opentelemetry.io/otel ", "sigs.k8s.io/", "pkcs12", "keystore-go"}

// An embedder copies an example into a module of its own and gets what docs/embed.md names.
func TestExamplesCompileAgainstRelease(t *testing.T) {
	gets := regexp.MustCompile(`(?m)^go get (\S+)`).FindAllStringSubmatch(read(t, filepath.Join(root, "docs/embed.md")), -1)
	if len(gets) != 2 || gets[0][1] != house || gets[1][1] != house+"/plugin-host" {
		t.Fatalf("docs/embed.md has %q", gets)
	}
	for _, name := range []string{"https-server", "grpc-mtls", "sds-database", "workload-api", "custom-agent"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			user.run(t, dir, "go", "mod", "init", "example.com/"+name)
			hosts := copySources(t, filepath.Join(root, "examples", name), dir)
			user.run(t, dir, "go", "get", gets[0][1]+"@"+version)
			if hosts {
				user.run(t, dir, "go", "get", gets[1][1]+"@"+version)
			}
			user.run(t, dir, "go", "mod", "tidy")
			user.run(t, dir, "go", "build", "-o", filepath.Join(dir, "program"), ".")
			checkMod(t, dir)
			sum := read(t, filepath.Join(dir, "go.sum"))
			for _, module := range foreign {
				if strings.Contains(sum, module) {
					t.Errorf("go.sum names %s:\n%s", module, sum)
				}
			}
			if linked := user.run(t, dir, "go", "version", "-m", filepath.Join(dir, "program")); strings.Contains(linked, "go-plugin\t") || !strings.Contains(linked, house+"\t"+version) {
				t.Errorf("it links:\n%s", linked)
			}
			if name == "grpc-mtls" {
				if out := user.run(t, dir, filepath.Join(dir, "program")); out != "spiffe://example.org/web is SERVING\n" {
					t.Errorf("it prints %q", out)
				}
			}
		})
	}
}

// copySources copies a program without its tests and reports whether it runs providers.
func copySources(t *testing.T, from, to string) (hosts bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", from, files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := read(t, file)
		hosts = hosts || strings.Contains(text, house+"/plugin-host")
		write(t, filepath.Join(to, filepath.Base(file)), text)
	}
	return hosts
}

// checkMod: the requirement in go.mod is the release, and nothing is replaced.
func checkMod(t *testing.T, dir string) {
	t.Helper()
	mod := read(t, filepath.Join(dir, "go.mod"))
	if !regexp.MustCompile(`(?m)^(require|\t) ?`+regexp.QuoteMeta(house+" "+version)+`$`).MatchString(mod) || strings.Contains(mod, "replace") {
		t.Errorf("go.mod:\n%s", mod)
	}
}

// installed are all programs of a release, in the order of their names.
var installed = []string{
	"countersign", "countersign-discovery",
	"countersign-provider-acme", "countersign-provider-aws", "countersign-provider-citadel", "countersign-provider-est", "countersign-provider-file", "countersign-provider-google", "countersign-provider-kubernetes", "countersign-provider-step", "countersign-provider-vault",
	"countersign-ra",
}

// clouds are the SDKs that no program links but its provider.
var clouds = []string{"cloud.google.com/go/security", "google.golang.org/api", "github.com/aws/", "github.com/hashicorp/vault", "github.com/smallstep/"}

// strangers are what a program must not link: the agent no Kubernetes, the servers no cloud.
var strangers = map[string][]string{
	"countersign":               append([]string{"k8s.io/", "sigs.k8s.io/controller-runtime", "istio.io/", "github.com/cert-manager/"}, clouds...),
	"countersign-discovery":     append([]string{"istio.io/", "github.com/cert-manager/", "go.opentelemetry.io/otel\t"}, clouds...),
	"countersign-ra":            clouds,
	"countersign-provider-file": append([]string{"k8s.io/", "github.com/spf13/", "github.com/prometheus/", "go.opentelemetry.io/otel\t"}, clouds...),
}

func TestInstalledProgramsKnowNameAndVersion(t *testing.T) {
	dir := t.TempDir()
	for _, program := range installed {
		user.run(t, dir, "go", "install", "-ldflags=-s -w", mainOf(program)+"@"+version)
		// A provider does not run by hand, and prints what it is.
		said, _ := user.command(dir, program, "version").CombinedOutput()
		if !regexp.MustCompile(`^\S+ 0\.1\.0 `).Match(said) {
			t.Errorf("%s says %q", program, said)
		}
	}
	for program, foreign := range strangers {
		linked := user.run(t, dir, "go", "version", "-m", filepath.Join(user.bin, program))
		for _, module := range foreign {
			if strings.Contains(linked, "\tdep\t"+module) {
				t.Errorf("%s links a module of %s:\n%s", program, module, linked)
			}
		}
	}
	entries, err := os.ReadDir(user.bin)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, installed) {
		t.Errorf("installed: %q, %v", names, err)
	}
}

func mainOf(program string) string {
	if name, provider := strings.CutPrefix(program, "countersign-provider-"); provider {
		return house + "/providers/" + name + "/cmd/" + program
	}
	return house + "/cmd/" + program
}

// What `provider new` prints is what its reader does next: where a mirror has the modules, with no
// network and no lookup of a checksum.
func TestNewProviderBuildsOnRelease(t *testing.T) {
	dir := t.TempDir()
	user.run(t, dir, "go", "install", "-ldflags=-s -w", mainOf("countersign")+"@"+version)
	said := user.run(t, dir, "countersign", "provider", "new", "acme")
	var script strings.Builder
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "  ") {
			script.WriteString(line)
		}
	}
	script.WriteString("go list -m all\ngo doc " + house + "/sdk/provider\n")
	cmd := user.command(dir, "sh", "-e", "-c", script.String())
	cmd.Env = append(cmd.Env, "GOPROXY="+user.mirror, "GOSUMDB=sum.golang.org http://127.0.0.1:1")
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "acme") {
		t.Errorf("%s\n%v\n%s", script.String(), err, said)
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
