//go:build unix

package reference

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fileOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	write(t, path, content)
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func shell(line string) map[string]any {
	return map[string]any{"command": []any{"/bin/sh", "-c", line}}
}

func lookUp(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func TestReferencesBecomeTheirValues(t *testing.T) {
	path := fileOf(t, "from a file\n")
	settings := map[string]any{
		"url": "https://ca", "size": 1 << 60, "plain": "in the file", "pin": 1234,
		"login":   map[string]any{"password": map[string]any{"file": path}, "id": map[string]any{"file": "not a reference"}},
		"headers": map[string]any{"a.b": map[string]any{"env": "ONE"}, "a": map[string]any{"env": "TWO"}, "file": "a header of that name"},
		"keys":    []any{shell("printf 'printed\n\n'"), "as it is"}, "empty": "",
	}
	r := NewResolver(Options{LookupEnv: lookUp(map[string]string{"ONE": "first", "TWO": "second"})}, settings)
	got, err := r.Resolve(t.Context(), Paths{"/login/password", "/headers/*", "/keys/*", "/plain", "/pin", "/absent/x", "/empty"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"login":   map[string]any{"password": "from a file", "id": map[string]any{"file": "not a reference"}},
		"headers": map[string]any{"a.b": "first", "a": "second", "file": "a header of that name"},
		"keys":    []any{"printed", "as it is"}, "url": "https://ca", "plain": "in the file",
	} {
		if !reflect.DeepEqual(got.Settings[path], want) {
			t.Errorf("%s: got %v, want %v", path, got.Settings[path], want)
		}
	}
	if want := []string{"headers.file", "keys.1", "plain"}; !reflect.DeepEqual(got.Plain, want) {
		t.Errorf("plain are %q, want %q", got.Plain, want)
	}
	if !reflect.DeepEqual(got.Files, []string{path}) || len(got.Secrets) != 7 || len(got.Stale) > 0 {
		t.Errorf("files %q, %d secrets, stale %v", got.Files, len(got.Secrets), got.Stale)
	}
	if settings["login"].(map[string]any)["password"].(map[string]any)["file"] != path {
		t.Error("the configuration itself was changed")
	}
}

func TestRelativePathBeginsInItsFolder(t *testing.T) {
	path := fileOf(t, "beside it")
	settings := map[string]any{"near": map[string]any{"file": filepath.Base(path)}, "far": map[string]any{"file": path}}
	r := NewResolver(Options{Dir: filepath.Dir(path)}, settings)
	got, err := r.Resolve(t.Context(), Paths{"/near", "/far"})
	if err != nil || got.Settings["near"] != "beside it" || got.Settings["far"] != "beside it" || !reflect.DeepEqual(got.Files, []string{path, path}) {
		t.Errorf("%v, files %q, %v", got.Settings, got.Files, err)
	}
}

// Two settings whose dotted paths are the same are two.
func TestDotsInNamesMixNoSecrets(t *testing.T) {
	settings := map[string]any{"a": map[string]any{"b.c": map[string]any{"env": "ONE"}}, "a.b": map[string]any{"c": map[string]any{"env": "TWO"}}}
	r := NewResolver(Options{LookupEnv: lookUp(map[string]string{"ONE": "first", "TWO": "second"})}, settings)
	got, err := r.Resolve(t.Context(), Paths{"/a/b.c", "/a.b/c"})
	if want := (map[string]any{"a": map[string]any{"b.c": "first"}, "a.b": map[string]any{"c": "second"}}); err != nil || !reflect.DeepEqual(got.Settings, want) {
		t.Errorf("got %v, %v", got.Settings, err)
	}
}

func TestMalformedReferenceIsInvalidAndNamed(t *testing.T) {
	for says, value := range map[string]map[string]any{
		"p: has 2 entries: write the text itself, or {file: PATH}": {"file": "a", "env": "b"}, "p: has 0 entries": {}, `p: has "fil"`: {"fil": "a"}, "file is empty": {"file": ""},
		"env is empty or no text": {"env": 1}, "command is empty or no list": {"command": "/bin/geheim"}, `command begins with "show"`: {"command": []any{"show", "geheim"}},
		"an argument that is not text": {"command": []any{"/bin/x", 1}},
	} {
		_, err := NewResolver(Options{}, map[string]any{"p": value}).Resolve(t.Context(), Paths{"/p"})
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v: got %v, want %q", value, err, says)
		}
	}
	many := map[string]any{}
	for i := range MaxReferences + 1 {
		many[strings.Repeat("x", i+1)] = map[string]any{"env": "A"}
	}
	if err := Check(many, Paths{"/*"}); err == nil || !strings.Contains(err.Error(), "33 references to secrets, 32 are allowed") {
		t.Errorf("got %v", err)
	}
}

func TestUnreadableReferenceIsUnavailable(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, value := range map[string]map[string]any{
		"p: file /nowhere: stat /nowhere: no such file": {"file": "/nowhere"}, "not a regular file": {"file": fifo}, "it is empty": {"file": fileOf(t, "\n\n")},
		"more than 65536 bytes": {"file": fileOf(t, strings.Repeat("geheim", 11000))}, "it is not UTF-8 text": {"file": fileOf(t, "geheim\xff")},
		"variable LONG: it has more than 65536 bytes": {"env": "LONG"},
		"exit status 3, and says: no":                 shell("echo geheim; echo no >&2; exit 3"), "it wrote more than 65536 bytes": shell("while :; do echo geheim; done"),
		"no answer within 200ms": shell("sleep 60"),
	} {
		opts := Options{Timeout: 200 * time.Millisecond, LookupEnv: lookUp(map[string]string{"LONG": strings.Repeat("geheim", 11000)})}
		if !strings.Contains(says, "200ms") {
			opts.Timeout = 2 * time.Minute
		}
		_, err := NewResolver(opts, map[string]any{"p": value}).Resolve(t.Context(), Paths{"/p"})
		if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) && !strings.Contains(says, "200ms") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v: got %v, want %q", value, err, says)
		}
	}
}

// A program's environment does not change, so waiting is of no use.
func TestUnsetVariableIsInvalid(t *testing.T) {
	settings := map[string]any{"p": map[string]any{"env": "NONE"}, "q": map[string]any{"env": "SET"}, "open": map[string]any{"env": "NONE"}}
	paths, lookup := Paths{"/p", "/q"}, lookUp(map[string]string{"SET": "x"})
	const says = "p: variable NONE: it is not set in the program's environment, or empty"
	_, err := NewResolver(Options{LookupEnv: lookup}, settings).Resolve(t.Context(), paths)
	if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v", err)
	}
	if err := Unset(settings, paths, lookup); err == nil || err.Error() != says {
		t.Errorf("Unset returns %v", err)
	}
	if err := Unset(settings, Paths{"/q"}, lookup); err != nil {
		t.Error(err)
	}
	empty := lookUp(map[string]string{"SET": "x", "NONE": "\n"})
	if _, err := NewResolver(Options{LookupEnv: empty}, settings).Resolve(t.Context(), paths); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("of an empty variable: %v", err)
	}
}

func TestLastGoodValueIsKept(t *testing.T) {
	path := fileOf(t, "one")
	vars := map[string]string{"V": "one"}
	r := NewResolver(Options{LookupEnv: lookUp(vars)}, map[string]any{"p": map[string]any{"file": path}, "v": map[string]any{"env": "V"}})
	paths := Paths{"/p", "/v"}
	step := func(read func() (Resolved, error), want map[string]any, stale int) {
		t.Helper()
		got, err := read()
		if err != nil || !maps.Equal(got.Settings, want) || len(got.Stale) != stale {
			t.Fatalf("got %v, %v, stale %v; want %v", got.Settings, err, got.Stale, want)
		}
	}
	resolve := func() (Resolved, error) { return r.Resolve(t.Context(), paths) }
	reread := func() (Resolved, error) { return r.Reread(t.Context(), paths) }
	step(resolve, map[string]any{"p": "one", "v": "one"}, 0)
	write(t, path, "two")
	vars["V"] = "two"
	step(reread, map[string]any{"p": "two", "v": "one"}, 0)
	write(t, path, "")
	step(reread, map[string]any{"p": "two", "v": "one"}, 1)
	delete(vars, "V")
	step(resolve, map[string]any{"p": "two", "v": "one"}, 2)
	write(t, path, "three")
	step(reread, map[string]any{"p": "three", "v": "one"}, 1)
}

func TestCommandGetsOnlyItsEnvironment(t *testing.T) {
	t.Setenv("A_SECRET", "geheim")
	r := NewResolver(Options{CommandEnv: []string{"OWN=mine"}}, map[string]any{"p": shell(`printf '%s%s' "$OWN" "$A_SECRET"`)})
	if got, err := r.Resolve(t.Context(), Paths{"/p"}); err != nil || got.Settings["p"] != "mine" {
		t.Errorf("got %v, %v", got.Settings, err)
	}
}

func TestSettingsWithoutSecretsStayTheSame(t *testing.T) {
	settings := map[string]any{"url": "x", "other": map[string]any{"file": "/nowhere"}}
	if got, err := NewResolver(Options{}, settings).Resolve(t.Context(), Paths{}); err != nil || !reflect.DeepEqual(got.Settings, settings) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := NewResolver(Options{}, nil).Resolve(t.Context(), Paths{"/p"}); err != nil || len(got.Settings) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFilesAreThoseThatSettingsMayName(t *testing.T) {
	here := "files.go" // beside this test
	got := NewResolver(Options{}, map[string]any{
		"password": map[string]any{"file": "/run/password"}, "pin": map[string]any{"command": []any{"/bin/show", "/etc/pin"}}, "key": map[string]any{"env": "KEY"},
		"plain": "/not/this", "root_file": "/etc/roots.pem", "role": "pki", "url": "https://ca/etc", "list": []any{here, "nowhere"}, "text": "/a\nb",
	}).Files(Paths{"/password", "/pin", "/key", "/plain"})
	if want := []string{"/bin/show", "/etc/roots.pem", "/run/password", here}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
