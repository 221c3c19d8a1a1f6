package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// named is a cluster of that name.
func named(name string) string {
	return fmt.Sprintf("{\"@type\": %q, \"name\": %q}\n", ClusterURL, name)
}

func deep(levels int) string {
	return "resources: " + strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

func TestExactBoundsAreAccepted(t *testing.T) {
	host := func(length int) string { return "hosts: {" + strings.Repeat("h", length) + ": {ips: [10.0.0.1]}}" }
	entries := func(n int) string {
		return "for: {namespaces: [" + strings.Repeat("a, ", n-1) + "a]}\n---\n" + named("a")
	}
	for name, c := range map[string]struct{ most, more, want string }{
		"bytes of a name":      {named(strings.Repeat("n", 4096)), named(strings.Repeat("n", 4097)), "must not have more than 4096 bytes"},
		"bytes of a host":      {host(253), host(254), "not a host name"},
		"documents":            {strings.Repeat("---\n", 10_000) + named("a"), strings.Repeat("---\n", 10_001) + named("a"), "more than 10000 documents"},
		"entries of a key":     {entries(1000), entries(1001), "1001 entries, more than 1000"},
		"bytes behind aliases": {grown(2*4<<20 - 2000), grown(2*4<<20 + 2000), "aliases expand it to more than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse([]byte(c.most)); err != nil {
				t.Error(err)
			}
			if _, err := parse([]byte(c.more)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// grown is a good file of about 64 KiB, and of that many bytes with its aliases.
func grown(size int) string {
	const text = 32 << 10
	var b strings.Builder
	b.WriteString(cluster + "metadata: {filter_metadata: {a: {t: &t " + strings.Repeat("t", text) + ", l: [")
	for range (size - text) / text {
		b.WriteString("*t, ")
	}
	fmt.Fprintf(&b, "%s]}}}", strings.Repeat("u", (size-text)%text))
	return b.String()
}

func TestNestingIsLimitedToHundredLevels(t *testing.T) {
	for levels, want := range map[int]string{
		99: "[0]: unexpected list; write a resource", 100: "[0]: unexpected list; write a resource",
		101: "nested more than 100 levels deep", 102: "nested more than 100 levels deep",
	} {
		if _, err := parse([]byte(deep(levels))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %s", levels, err, want)
		}
	}
	through := "a: &a []\nresources: " + strings.Repeat("[", 99) + "*a" + strings.Repeat("]", 99)
	if _, err := parse([]byte(through)); err == nil || !strings.Contains(err.Error(), "nested more than 100 levels deep") {
		t.Errorf("an alias counts as a level: %v", err)
	}
}

func TestFolderIsBounded(t *testing.T) {
	some := func(of string, n int) *file {
		f := &file{versions: make(map[key]string, n)}
		for i := range n {
			f.versions[key{of, fmt.Sprint(i)}] = "1"
		}
		return f
	}
	g := newGeneration()
	for _, f := range []*file{some(ClusterURL, 20_000), some(ListenerURL, 30_000)} {
		if err := g.add("a.yaml", f); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.add("b.yaml", some(RouteURL, 1)); err == nil || !strings.Contains(err.Error(), "more than 50000 resources") {
		t.Error(err)
	}
}

// The same name for callers apart is as many resources.
func TestNameCountsForEachFile(t *testing.T) {
	g := newGeneration()
	for i := range 3 {
		f := &file{versions: map[key]string{}, to: selector{Namespaces: []string{fmt.Sprint(i)}, text: fmt.Sprint(i)}}
		for name := range 20_000 {
			f.versions[key{ClusterURL, fmt.Sprint(name)}] = "1"
		}
		if err := g.add("a.yaml", f); (err != nil) != (i == 2) {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

func TestThousandFilesAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	d := newDir(t)
	for i := range 1000 {
		d.must(os.WriteFile(filepath.Join(d.path, fmt.Sprintf("%d.yaml", i)), nil, 0o600))
	}
	f := d.open()
	if n := len(f.Status().Files); n != 1000 {
		t.Errorf("%d files", n)
	}
	d.write("more.yaml", "")
	f.look(time.Time{})
	if s := f.Status(); s.Fault != "the folder has 1001 files, more than 1000" || len(s.Files) != 1000 {
		t.Errorf("%d files, %s", len(s.Files), s.Fault)
	}
}

func TestFileSizeIsBounded(t *testing.T) {
	d := newDir(t)
	d.write("most.yaml", strings.Repeat("#", maxFile))
	d.write("more.yaml", strings.Repeat("#", maxFile+1))
	f := d.open()
	for name, want := range map[string]string{"most.yaml": "empty file", "more.yaml": "more.yaml has more than 4194304 bytes"} {
		if s := d.state(f, name); !strings.Contains(s.Reason, want) {
			t.Errorf("%+v, want %s", s, want)
		}
	}
}

func TestTotalSizeBoundRefusesLastFilesByName(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	d := newDir(t)
	for i := range 18 {
		name := filepath.Join(d.path, fmt.Sprintf("%02d.yaml", i))
		d.must(os.WriteFile(name, nil, 0o600))
		d.must(os.Truncate(name, maxFile))
	}
	f := d.open()
	for i, s := range f.Status().Files {
		if over := strings.Contains(s.Reason, errTotal.Error()); over != (i >= 16) {
			t.Errorf("%+v", s)
		}
	}
}

func TestExactTotalSizeIsAccepted(t *testing.T) {
	d := newDir(t)
	d.write("a.yaml", cluster)
	e := &entry{name: "a.yaml"}
	most, more := maxTotal-len(cluster), maxTotal-len(cluster)+1
	if s := e.see(d.path, true, &most); s.err != nil {
		t.Error(s.err)
	}
	refused := e.see(d.path, true, &more)
	if refused.err == nil || refused.content != nil {
		t.Errorf("%+v", refused)
	}
	// A file that was over it and is removed is another state.
	if gone := e.see(d.path, false, &more); gone.sum == refused.sum {
		t.Error("it is not seen to go")
	}
}
