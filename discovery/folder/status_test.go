package folder

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func (d dir) state(f *Folder, name string) FileStatus {
	for _, file := range f.Status().Files {
		if file.Name == name {
			return file
		}
	}
	return FileStatus{}
}

func TestMissingReferenceIsAWarning(t *testing.T) {
	d := newDir(t)
	d.write("in.yaml", "for: {namespaces: [ingress]}\n---\n"+fmt.Sprintf(listener, aboutHTTP))
	d.write("routes.yaml", "for: {namespaces: [shop]}\n---\n\"@type\": "+RouteURL+"\nname: routes")
	f := d.open()
	s := d.state(f, "in.yaml")
	if s.State != Served || len(s.Warnings) != 1 || !strings.HasPrefix(s.Warnings[0], `route configuration "routes" is named here, and no file has it for the same callers`) {
		t.Errorf("%+v", s)
	}
	d.write("routes.yaml", "\"@type\": "+RouteURL+"\nname: routes")
	f.look(time.Time{})
	if s := d.state(f, "in.yaml"); len(s.Warnings) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestResourceThatNothingUsesIsAWarning(t *testing.T) {
	routes := func(name, action string) string {
		return "\"@type\": " + RouteURL + "\nname: " + name + "\nvirtual_hosts: [{name: all, domains: ['*'], routes: [{match: {prefix: /}, route: " + action + "}]}]\n"
	}
	const clusters = "for: {namespaces: [%s]}\n---\nresources:\n- {\"@type\": " + ClusterURL + ", name: used}\n- {\"@type\": " + ClusterURL + ", name: mirror}\n- {\"@type\": " + ClusterURL + ", name: idle}\n"
	mirrored := "{cluster: used, request_mirror_policies: [{cluster: mirror}]}"
	for name, c := range map[string]struct {
		listener, namespace, action string
		want                        []string
	}{
		"used and unused":             {fmt.Sprintf(listener, aboutHTTP), "ingress", mirrored, []string{`cluster "idle"`}},
		"no listener in the folder":   {"", "ingress", mirrored, nil},
		"listener of others":          {fmt.Sprintf(listener, aboutHTTP), "shop", mirrored, nil},
		"requests choose by a header": {fmt.Sprintf(listener, aboutHTTP), "ingress", "{cluster_header: x-cluster}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			if c.listener != "" {
				d.write("in.yaml", "for: {namespaces: [ingress]}\n---\n"+c.listener)
			}
			d.write("routes.yaml", "for: {namespaces: [ingress]}\n---\n"+routes("routes", c.action)+"---\n"+routes("idle-routes", mirrored))
			d.write("clusters.yaml", fmt.Sprintf(clusters, c.namespace))
			f := d.open()
			got := d.state(f, "clusters.yaml").Warnings
			if len(got) != len(c.want) || len(got) > 0 && !strings.HasPrefix(got[0], c.want[0]+" is used by no file for the same callers") {
				t.Errorf("clusters: %q, want %q", got, c.want)
			}
			idle := slices.ContainsFunc(d.state(f, "routes.yaml").Warnings, func(w string) bool {
				return strings.HasPrefix(w, `route configuration "idle-routes" is used by no file`)
			})
			if idle != (c.listener != "") {
				t.Errorf("routes: %q", d.state(f, "routes.yaml").Warnings)
			}
		})
	}
}

func TestRefusedFileWarnsOfNothing(t *testing.T) {
	d := newDir(t)
	d.write("in.yaml", fmtListener())
	f := d.open()
	if s := d.state(f, "in.yaml"); len(s.Warnings) != 1 {
		t.Errorf("%+v", s)
	}
	d.write("first.yaml", fmtListener())
	f.look(time.Time{})
	if s := d.state(f, "in.yaml"); s.State != Refused || len(s.Warnings) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestFileIsInStatusOnceRead(t *testing.T) {
	d := newDir(t)
	f := d.open()
	d.write("web.yaml", cluster)
	f.look(time.Now())
	if files := f.Status().Files; len(files) != 0 {
		t.Errorf("%+v", files)
	}
	f.look(time.Now().Add(time.Hour))
	if s := d.state(f, "web.yaml"); s.State != Served {
		t.Errorf("%+v", s)
	}
}

func TestFileNameIsEscapedInReason(t *testing.T) {
	d := newDir(t)
	d.must(os.Symlink("nowhere", filepath.Join(d.path, "a\nb.yaml")))
	f := d.open()
	if s := d.state(f, "a\nb.yaml"); s.State != Refused || !strings.HasPrefix(s.Reason, `a\nb.yaml: `) || strings.Contains(s.Reason, "\n") {
		t.Errorf("%q", s.Reason)
	}
}

func TestNewFaultOfFileIsLoggedAgain(t *testing.T) {
	var text logtest.Log
	d := newDir(t)
	d.write("bad.yaml", "x: 1")
	f, err := New(Config{Path: d.path, Log: slog.New(slog.NewTextHandler(&text, nil))})
	d.must(err)
	d.write("bad.yaml", "y: 1")
	f.look(time.Time{})
	if n := strings.Count(text.String(), "resource file rejected"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, &text)
	}
}

func TestRefusedFileIsLoggedOnce(t *testing.T) {
	var text logtest.Log
	d := newDir(t)
	d.write("bad.yaml", "x: 1")
	f, err := New(Config{Path: d.path, Log: slog.New(slog.NewTextHandler(&text, nil))})
	d.must(err)
	d.write("web.yaml", cluster)
	f.look(time.Time{})
	if n := strings.Count(text.String(), "resource file rejected"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &text)
	}
}
