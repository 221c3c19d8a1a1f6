package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clone returns a clone of what is committed.
func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "countersign")
	if out, err := exec.Command("git", "clone", "--quiet", "--local", root, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// The version of what is committed; the working tree is another.
const tagged = "v0.2.0"

// The go command takes a module from the tags in git, and gets the very bytes that the proxy
// has; a checkout of the tag is tidy, and the commit after it has the tree from before.
func TestTagMatchesProxy(t *testing.T) {
	dir := clone(t)
	released, err := release(dir, tagged, user.proxy)
	if err != nil {
		t.Fatal(err)
	}
	finish(t, dir, released)
	if out := user.run(t, dir, "git", "diff", "HEAD~2", "HEAD"); out != "" {
		t.Errorf("the revert leaves\n%s", out)
	}
	user.run(t, dir, "git", "checkout", "--quiet", tagged)
	if out := user.inWorkspace(t, dir, "list", "work") + user.run(t, dir, "git", "status", "--porcelain"); !strings.Contains(out, house) || strings.Contains(out, " M ") {
		t.Errorf("the workspace of the release:\n%s", out)
	}
	for _, m := range released {
		fetched := user.download(t, m.path(), "GOPROXY=direct", "GOMODCACHE="+t.TempDir(),
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+house)
		if served := user.download(t, m.path()); fetched != served || served.Sum == "" {
			t.Errorf("%s: %+v is tagged, %+v is served", m.path(), fetched, served)
		}
		user.run(t, filepath.Join(dir, m.dir), "go", "mod", "tidy", "-diff")
	}
}

// inWorkspace runs the go command with go.work, and without any proxy.
func (c consumer) inWorkspace(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := c.command(dir, "go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=", "GOPROXY=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%.2000s", args, err, out)
	}
	return string(out)
}

// finish does what `modules -write` does and what it prints.
func finish(t *testing.T, dir string, released []*member) {
	t.Helper()
	var script strings.Builder
	if err := writeBack(&script, dir, tagged, released); err != nil {
		t.Fatal(err)
	}
	cmd := user.command(dir, "sh", "-e", "-c", script.String())
	cmd.Env = append(cmd.Env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script.String(), err, out)
	}
}

// download is the output of `go mod download` for a module.
type download struct{ Version, Sum, GoModSum string }

func (c consumer) download(t *testing.T, path string, env ...string) (d download) {
	t.Helper()
	cmd := c.command(t.TempDir(), "go", "mod", "download", "-json", path+"@"+tagged)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The go command writes into go.work.sum what it misses there: a clone would be dirty as soon
// as one looks at it. `make tidy` mends that.
func TestInspectingCloneLeavesItClean(t *testing.T) {
	dir := clone(t)
	for _, args := range [][]string{{"doc", "./sdk/secret"}, {"list", "work"}, {"list", "-m", "all"}, {"vet", "./sdk/ca"}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=") // found by the folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %v: %v\n%.2000s", args, err, out)
		}
	}
	if changed, err := git(dir, "status", "--porcelain"); changed != "" || err != nil {
		t.Errorf("%s\n%v", changed, err)
	}
}
