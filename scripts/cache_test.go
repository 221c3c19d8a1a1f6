// Package scripts_test tests the cache of foreign programs, with a program that is built at
// once.
package scripts_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// newClone returns a clone with the fake program's script and the file that it depends on.
// cp writes the scripts: if this process did, a child of another test could still have one
// open for writing, and executing it would fail.
func newClone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	scripts := []string{"cache", "cache.bash", "testdata/get-fake"}
	see(t, scripts...)
	must(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
	must(t, exec.Command("cp", append(scripts, filepath.Join(dir, "scripts"))...).Run())
	must(t, os.WriteFile(filepath.Join(dir, "lock"), []byte("1"), 0o600))
	return dir
}

// see reads the files that scripts read, so that Go's test cache knows of them.
func see(t *testing.T, patterns ...string) {
	t.Helper()
	proctest.NeedsProcess(t) // which is what runs a script
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		must(t, err)
		for _, name := range names {
			_, err := os.ReadFile(name)
			must(t, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is a script that runs.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	says  *bufio.Reader // stdout and stderr
}

// start starts a script of the clone, in the clone, with no environment but PATH and env.
func start(t *testing.T, clone, command string, env ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", strings.Fields("scripts/"+command)...)
	cmd.Dir, cmd.Env = clone, append(slices.Clone(env), "PATH="+os.Getenv("PATH"))
	input, err := cmd.StdinPipe()
	must(t, err)
	t.Cleanup(func() { input.Close() })
	output, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())
	return &process{cmd, input, bufio.NewReader(output)}
}

// awaitLine waits until the script prints a line that contains want.
func (p *process) awaitLine(t *testing.T, want string) {
	t.Helper()
	if line, err := p.says.ReadString('\n'); !strings.Contains(line, want) {
		t.Fatalf("it printed %q, %v, want %q", line, err, want)
	}
}

// end ends the script's input, and returns the last line that it prints.
func (p *process) end() (string, error) {
	p.input.Close()
	all, _ := io.ReadAll(p.says)
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	return lines[len(lines)-1], p.cmd.Wait()
}

// printed returns what a script prints last, which must succeed.
func printed(t *testing.T, clone, command string, env ...string) string {
	t.Helper()
	line, err := start(t, clone, command, env...).end()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, line)
	}
	return line
}

// checkCache checks that the cache holds the program, whole and as builder built it, and
// nothing else.
func checkCache(t *testing.T, cache, program, builder string) {
	t.Helper()
	if content, err := os.ReadFile(program); string(content) != "whole\n" {
		t.Errorf("%s holds %q, %v", program, content, err)
	}
	folder := filepath.Dir(program)
	checkEntries(t, folder, "by-"+builder, "program")
	checkEntries(t, cache, filepath.Base(folder), "fake.lock")
}

func checkEntries(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s holds %v, want %v", folder, names, want)
	}
}

func TestTwoClonesShareOneBuild(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	one, other := newClone(t), newClone(t)
	first := start(t, one, "get-fake", "CACHE="+cache, "BUILDER=first")
	first.awaitLine(t, "started")
	second := start(t, other, "get-fake", "CACHE="+cache, "BUILDER=second")
	second.awaitLine(t, "waiting for another process")
	path, err := first.end()
	must(t, err)
	if got, err := second.end(); got != path || err != nil {
		t.Errorf("the second got %q, %v, want %q", got, err, path)
	}
	checkCache(t, cache, path, "first")
	if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the cache's folder: %v, %v", info.Mode(), err)
	}
}

// The killed script's child may still write, so the next build waits for it.
func TestKilledBuildIsSwept(t *testing.T) {
	t.Parallel()
	clone, cache := newClone(t), t.TempDir()
	killed := start(t, clone, "get-fake", "CACHE="+cache, "BUILDER=killed")
	killed.awaitLine(t, "started")
	must(t, killed.cmd.Process.Kill())
	next := start(t, clone, "get-fake", "CACHE="+cache, "BUILDER=next")
	next.awaitLine(t, "waiting for another process")
	if _, err := killed.end(); err == nil {
		t.Error("the script was not killed")
	}
	path, err := next.end()
	must(t, err)
	checkCache(t, cache, path, "next")
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	t.Parallel()
	clone, cache := newClone(t), t.TempDir()
	if line, err := start(t, clone, "cache fill", "CACHE="+cache, "BUILDER=x", "BROKEN=1").end(); err == nil {
		t.Errorf("it ended well with %q", line)
	}
	printed(t, clone, "cache fill", "CACHE="+cache, "BUILDER=y")
	checkCache(t, cache, printed(t, clone, "get-fake --path", "CACHE="+cache), "y")
}

func TestUntrustedFolderIsRefused(t *testing.T) {
	t.Parallel()
	foreign, writable := t.TempDir(), t.TempDir()
	must(t, os.Chmod(writable, 0o770))
	if os.Geteuid() == 0 {
		must(t, os.Chown(foreign, 65534, 65534))
	} else {
		foreign = "/"
	}
	for cache, want := range map[string]string{foreign: "belongs to another user", writable: "others can write"} {
		for _, command := range []string{"get-fake", "get-fake --path", "cache missing"} {
			line, err := start(t, newClone(t), command, "CACHE="+cache, "BUILDER=x").end()
			if err == nil || !strings.Contains(line, want) {
				t.Errorf("%s: %q, %v, want %q", command, line, err, want)
			}
		}
	}
}

func TestCacheFolder(t *testing.T) {
	t.Parallel()
	clone := newClone(t)
	for want, env := range map[string][]string{
		"/home/u/.cache/countersign/": {"HOME=/home/u"},
		"/home/u/.cache/countersign":  {"HOME=/home/u", "CACHE=", "XDG_CACHE_HOME=not/absolute"},
		"/x/countersign/":             {"HOME=/home/u", "XDG_CACHE_HOME=/x"},
		"/c/":                         {"XDG_CACHE_HOME=/x", "CACHE=/c"},
		clone + "/c/":                 {"CACHE=c"},
	} {
		if got := printed(t, clone, "get-fake --path", env...); !strings.HasPrefix(got, want) {
			t.Errorf("with %v it is %s, want %s", env, got, want)
		}
	}
}

func TestKeyCoversInputsAndScript(t *testing.T) {
	t.Parallel()
	clone := newClone(t)
	seen := map[string]bool{}
	for _, file := range []string{"", "lock", "scripts/get-fake"} {
		if file != "" {
			appendTo(t, filepath.Join(clone, file), "\n")
		}
		seen[printed(t, clone, "get-fake --path", "CACHE=/c")] = true
	}
	if len(seen) != 3 {
		t.Errorf("there are %v", seen)
	}
	must(t, os.Remove(filepath.Join(clone, "lock")))
	if line, err := start(t, clone, "get-fake --path", "CACHE=/c").end(); err == nil {
		t.Errorf("without an input it is %s", line)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, err)
	must(t, file.Close())
}

func TestUnusedVersionsAreRemoved(t *testing.T) {
	t.Parallel()
	clone, cache := newClone(t), t.TempDir()
	used := printed(t, clone, "get-fake", "CACHE="+cache, "BUILDER=x")
	old := time.Now().Add(-31 * 24 * time.Hour)
	must(t, os.Chtimes(filepath.Dir(used), old, old))
	printed(t, clone, "get-fake", "CACHE="+cache) // uses it
	unused := filepath.Join(cache, "fake-v0-0123456789ab")
	must(t, os.Mkdir(unused, 0o700))
	must(t, os.Chtimes(unused, old, old))
	appendTo(t, filepath.Join(clone, "lock"), "2")
	printed(t, clone, "get-fake", "CACHE="+cache, "BUILDER=y")
	if _, err := os.Stat(used); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(unused); err == nil {
		t.Error("the unused version is still there")
	}
}

func TestMissingListsUncachedPrograms(t *testing.T) {
	t.Parallel()
	clone, cache := newClone(t), t.TempDir()
	if line := printed(t, clone, "cache missing", "CACHE="+cache); line != "fake v1: built at once" {
		t.Errorf("missing is %q", line)
	}
	printed(t, clone, "get-fake", "CACHE="+cache, "BUILDER=x")
	if line := printed(t, clone, "cache missing", "CACHE="+cache); line != "" {
		t.Errorf("missing is %q", line)
	}
}

func TestRealProgramsHaveVersions(t *testing.T) {
	t.Parallel()
	see(t, "*.bash", "cache", "get-*", "node.txt", "venv", "../tools/*/go.*", "../test/e2e/requirements.txt", "../test/e2e/grpcjs/*.json", "../sdk/languages/*/*.*", "../sdk/languages/*/LICENSE", "../sdk/languages/*/lib/*", "../sdk/languages/*/example/*.*", "../sdk/languages/python/src/*/*.*", "../sdk/languages/rust/*/src/*", "../sdk/languages/rust/generate/*.*", "../sdk/languages/rust/src/*")
	p := start(t, "..", "cache missing", "CACHE="+t.TempDir(), "HOME="+t.TempDir())
	all, err := io.ReadAll(p.says)
	must(t, err)
	must(t, p.cmd.Wait())
	for _, want := range []string{"envoy v1.", "grpcjs v1.", "kubernetes v1.", "pebble v2.", "provider-node: ", "provider-python: ", "provider-rust: ", "step-ca v0.", "vault v1."} {
		if !strings.Contains("\n"+string(all), "\n"+want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
}
