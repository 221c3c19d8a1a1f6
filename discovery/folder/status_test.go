package folder

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	var text strings.Builder
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
	var text strings.Builder
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
