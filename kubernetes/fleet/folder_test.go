package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
)

var rulesThatAreNone = kubeconfig.Rules{Allow: []string{"everything"}}

func place(t *testing.T, path string, text []byte) {
	t.Helper()
	fresh := filepath.Join(filepath.Dir(path), ".fresh")
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		t.Fatal(err)
	}
}

func TestKubeconfigFolderIsFollowed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east", "west")
	local, east, west := s[0], s[1], s[2]
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	place(t, at("east.yaml"), east.kubeconfig(""))
	place(t, at("local.yaml"), east.kubeconfig(""))
	place(t, at(".hidden.yaml"), east.kubeconfig(""))
	place(t, at("odd name.yaml"), east.kubeconfig(""))
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := start(t, local, func(c *Config) { c.Folder = dir }).ready(t)
	r.synced(t, "east", east)
	if len(r.Status()) != 3 || r.status("odd name").State != Failed || len(r.status("local").Refused) != 1 {
		t.Errorf("%+v", r.Status())
	}
	place(t, at("west"), west.kubeconfig(""))
	r.synced(t, "west", west)
	place(t, at("east.yaml"), west.kubeconfig(""))
	r.synced(t, "east", west)
	place(t, at("west"), []byte("malformed"))
	until(t, "it is refused", func() bool { return r.status("west").State == Failed })
	if got := r.status("west"); !got.Serving || got.Source != "file "+at("west") {
		t.Errorf("%+v", got)
	}
	_ = os.Remove(at("west"))
	_ = os.Remove(at("east.yaml"))
	r.gone(t, "west", west)
	r.gone(t, "east", west)
}

// A Secret has an id before a file has it, and a pipe or a file too long stops nobody.
func TestBadFileInFolderAffectsNoOther(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east", "evil")
	dir := t.TempDir()
	place(t, filepath.Join(dir, "east.yaml"), s[2].kubeconfig(""))
	place(t, filepath.Join(dir, "long.yaml"), make([]byte, kubeconfig.MaxSize+10))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml"))
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	s[0].fail(-2)
	r := start(t, s[0], func(c *Config) { c.Folder = dir })
	for range 8 { // in which the folder is looked at, and nothing may come of it
		place(t, filepath.Join(dir, "another.yaml"), s[2].kubeconfig("another"))
		<-time.After(50 * time.Millisecond)
	}
	if len(r.Status()) != 1 {
		t.Errorf("files have ids before the Secrets are known: %+v", r.Status())
	}
	_ = os.Remove(filepath.Join(dir, "another.yaml"))
	s[0].fail(0)
	r.ready(t).synced(t, "east", s[1])
	for id, want := range map[string]string{"pipe": "not a regular file", "long": "more than 1048576 bytes", "dangling": "cannot be read"} {
		if got := r.status(id); got.State != Failed || !strings.Contains(got.Fault, want) {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if got := r.status("east"); !strings.HasPrefix(got.Source, "secret") || len(got.Refused) != 1 {
		t.Errorf("%+v", got)
	}
	s[0].remove(remotes("r", 0, nil))
	r.synced(t, "east", s[2])
}

func TestUnreadableFolderKeepsItsClusters(t *testing.T) {
	s := servers(t, "local", "east")
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(dir, "east.yaml"), s[1].kubeconfig(""))
	r := start(t, s[0], func(c *Config) { c.Folder = dir }).ready(t)
	before := r.synced(t, "east", s[1])
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is shown", func() bool { return strings.Contains(r.status("local").Fault, "folder") })
	if after, ok := r.Cluster("east"); !ok || after != before {
		t.Error("the cluster is gone with the folder")
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	until(t, "it is back", func() bool { return r.status("local").Fault == "" })
}
