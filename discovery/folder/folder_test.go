package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const second = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: second
`

func TestUnreadableFolderIsAnError(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Config.Path is required") {
		t.Error(err)
	}
	if _, err := New(Config{Path: filepath.Join(t.TempDir(), "none")}); err == nil || !strings.Contains(err.Error(), "cannot read the folder") {
		t.Error(err)
	}
}

func TestOnlyResourceFilesAreRead(t *testing.T) {
	d := newDir(t)
	for _, name := range []string{"README.md", ".hidden.yaml", "web.yaml.bak"} {
		d.write(name, "not: a resource")
	}
	d.must(os.Mkdir(filepath.Join(d.path, "more.yaml"), 0o700))
	for i, name := range []string{"a.yaml", "b.yml", "c.JSON"} {
		d.write(name, fmt.Sprintf(`{"@type": %q, "name": "c%d"}`, ClusterURL, i))
	}
	f := d.open()
	if got := len(f.Status().Files); got != 3 {
		t.Errorf("%d files are in the status: %+v", got, f.Status().Files)
	}
	for i := range 3 {
		if f.version(gateway(t), ClusterURL, fmt.Sprintf("c%d", i)) == "" {
			t.Errorf("c%d is not there", i)
		}
	}
}

func TestFilesAreFollowed(t *testing.T) {
	d := newDir(t)
	f, c := d.run(), gateway(t)
	d.write("web.yaml", cluster)
	eventually(t, "the new file is served", func() bool { return f.version(c, ClusterURL, "web") != "" })
	before := f.version(c, ClusterURL, "web")
	d.write("web.yaml", strings.Replace(cluster, "1s", "2s", 1))
	eventually(t, "the changed file is served", func() bool { return f.version(c, ClusterURL, "web") != before })
	d.remove("web.yaml")
	eventually(t, "the removed file is not served", func() bool { return f.version(c, ClusterURL, "web") == "" })
	if files := f.Status().Files; len(files) != 0 {
		t.Errorf("the status has %+v", files)
	}
}

func TestBadFileKeepsOldContentAndLogsWhy(t *testing.T) {
	d := newDir(t)
	d.write("bad.yaml", "x: 1")
	d.write("web.yaml", cluster)
	f, c := d.run(), gateway(t)
	if s := d.state(f, "bad.yaml"); s.State != Refused || !strings.HasPrefix(s.Reason, "bad.yaml: document 1, x: ") || s.Resources != 0 {
		t.Errorf("bad from the start: %+v", s)
	}
	d.write("web.yaml", cluster+"nam: x")
	eventually(t, "the file is found bad", func() bool { return d.state(f, "web.yaml").State == Kept })
	if s := d.state(f, "web.yaml"); s.Resources != 1 || s.Reason != `web.yaml: document 1, nam: unknown field of Cluster; did you mean "name"?` {
		t.Errorf("%+v", s)
	}
	if f.version(c, ClusterURL, "web") == "" {
		t.Error("what it held is gone")
	}
	d.write("web.yaml", cluster)
	eventually(t, "the file is good again", func() bool { return d.state(f, "web.yaml").State == Served })
	d.write("web.yaml", "")
	eventually(t, "an empty file is bad", func() bool { return d.state(f, "web.yaml").State == Kept })
	d.remove("web.yaml")
	eventually(t, "a removed file takes what it held along", func() bool { return f.version(c, ClusterURL, "web") == "" })
}

// Each piece of this file is good YAML, and the first would delete a cluster.
func TestHalfWrittenFileIsNotTaken(t *testing.T) {
	both := cluster + "---\n" + second
	d := newDir(t)
	d.write("web.yaml", both)
	f, c := d.open(), gateway(t)
	f.cfg.Settle = time.Minute
	d.write("web.yaml", cluster)
	now := time.Now()
	if !f.look(now) {
		t.Error("the piece is not noticed")
	}
	if f.version(c, ClusterURL, "second") == "" {
		t.Error("the piece is taken")
	}
	d.write("web.yaml", both+"---\n"+endpoints("10.0.0.1"))
	f.look(now.Add(50 * time.Second))
	f.look(now.Add(100 * time.Second))
	if f.version(c, EndpointURL, "web") != "" {
		t.Error("the whole is taken as if it had been there as long as the piece")
	}
	if f.look(now.Add(110 * time.Second)) { // a minute to the second
		t.Error("more is waited for")
	}
	if f.version(c, ClusterURL, "second") == "" || f.version(c, EndpointURL, "web") == "" {
		t.Error("the whole is not taken")
	}
	d.remove("web.yaml")
	f.look(now.Add(112 * time.Second))
	if f.version(c, ClusterURL, "web") == "" {
		t.Error("a file that may come back at once is gone")
	}
}

func TestRemovedFolderKeepsOldContent(t *testing.T) {
	d := newDir(t)
	d.write("web.yaml", cluster)
	f, c := d.run(), gateway(t)
	d.must(os.Rename(d.path, d.path+".old"))
	eventually(t, "the status shows that it is gone", func() bool { return f.Status().Fault != "" })
	if f.version(c, ClusterURL, "web") == "" {
		t.Error("what it held is gone")
	}
	d.must(os.Rename(d.path+".old", d.path))
	d.write("second.yaml", second)
	eventually(t, "the folder is followed again", func() bool { return f.Status().Fault == "" && f.version(c, ClusterURL, "second") != "" })
}

// Kubernetes mounts a ConfigMap as links through ..data, which it swaps.
func TestMountedConfigMapIsFollowed(t *testing.T) {
	d := newDir(t)
	generation := func(name, content string) {
		d.must(os.Mkdir(filepath.Join(d.path, name), 0o700))
		d.must(os.WriteFile(filepath.Join(d.path, name, "web.yaml"), []byte(content), 0o600))
		d.must(os.Symlink(name, filepath.Join(d.path, "..tmp")))
		d.must(os.Rename(filepath.Join(d.path, "..tmp"), filepath.Join(d.path, "..data")))
	}
	generation("..1", endpoints("10.0.0.1"))
	d.must(os.Symlink("..data/web.yaml", filepath.Join(d.path, "web.yaml")))
	f, c := d.run(), gateway(t)
	before := f.version(c, EndpointURL, "web")
	if before == "" {
		t.Fatalf("it is not read: %+v", f.Status())
	}
	generation("..2", endpoints("10.0.0.2"))
	eventually(t, "the swap is followed", func() bool { v := f.version(c, EndpointURL, "web"); return v != before && v != "" })
	d.must(os.RemoveAll(filepath.Join(d.path, "..2")))
	eventually(t, "a link to nothing is bad", func() bool { return d.state(f, "web.yaml").State == Kept })
}

func TestIrregularOrOversizedFileIsRefused(t *testing.T) {
	d := newDir(t)
	d.must(os.Symlink("/dev/zero", filepath.Join(d.path, "zero.yaml")))
	d.write("big.yaml", strings.Repeat("#", maxFile+1))
	f := d.open()
	for name, want := range map[string]string{"zero.yaml": "zero.yaml is not a regular file", "big.yaml": "big.yaml has more than 4194304 bytes"} {
		if s := d.state(f, name); s.State != Refused || !strings.Contains(s.Reason, want) {
			t.Errorf("%+v, want %s", s, want)
		}
	}
}

func TestFirstOfTwoFilesWithSameNameIsServed(t *testing.T) {
	d := newDir(t)
	d.write("b.yaml", strings.Replace(cluster, "1s", "2s", 1)+"---\n"+second)
	f, c := d.run(), gateway(t)
	later := f.version(c, ClusterURL, "web")
	d.write("a.yaml", cluster)
	eventually(t, "the later file is refused", func() bool { return d.state(f, "b.yaml").State == Refused })
	want := `b.yaml: cluster "web" is already in a.yaml, and some callers match both files; the file that sorts first is served`
	if s := d.state(f, "b.yaml"); s.Reason != want {
		t.Errorf("got %s", s.Reason)
	}
	if v := f.version(c, ClusterURL, "web"); v == later || v == "" || f.version(c, ClusterURL, "second") != "" {
		t.Error("something of the later file is served")
	}
	d.remove("a.yaml")
	eventually(t, "the later file is served when it stands alone", func() bool { return f.version(c, ClusterURL, "web") == later })
	if s := d.state(f, "b.yaml"); s.State != Served || s.Reason != "" {
		t.Errorf("%+v", s)
	}
}

func TestSameNameIsAllowedForDisjointCallers(t *testing.T) {
	d := newDir(t)
	d.write("a.yaml", "for: {namespaces: [ingress]}\n---\n"+cluster)
	d.write("b.yaml", "for: {namespaces: [shop]}\n---\n"+strings.Replace(cluster, "1s", "2s", 1))
	f := d.open()
	a, b := f.version(gateway(t), ClusterURL, "web"), f.version(caller(t, "spiffe://example.org/ns/shop/sa/web"), ClusterURL, "web")
	if a == "" || b == "" || a == b {
		t.Errorf("they have %q and %q; %+v", a, b, f.Status())
	}
}

func TestUnchangedFolderKeepsGeneration(t *testing.T) {
	d := newDir(t)
	d.write("web.yaml", cluster)
	d.write("bad.yaml", "x: 1")
	f := d.open()
	before := f.now.Load()
	if f.look(time.Now()) {
		t.Error("something is waited for")
	}
	if f.now.Load() != before {
		t.Error("it is another generation")
	}
}

// The links of a folder may lead to where its own changes cause no event.
func TestLinkToFileElsewhereIsFollowed(t *testing.T) {
	d, elsewhere := newDir(t), newDir(t)
	elsewhere.write("web.yaml", cluster)
	d.must(os.Symlink(filepath.Join(elsewhere.path, "web.yaml"), filepath.Join(d.path, "web.yaml")))
	f, c := d.run(), gateway(t)
	for _, timeout := range []string{"2s", "3s"} { // the first may be seen when the folder is looked at anew
		before := f.version(c, ClusterURL, "web")
		elsewhere.write("web.yaml", strings.Replace(cluster, "1s", timeout, 1))
		eventually(t, "the change elsewhere is followed", func() bool { v := f.version(c, ClusterURL, "web"); return v != before && v != "" })
	}
}
