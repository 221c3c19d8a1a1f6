package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	ownCA   = "package main\n\nfunc open() {}\n"
	usesCA  = "package main\n\nimport \"" + standIn + "\"\n\ntype held struct{ ca *catest.CA }\n\nfunc open() held { return held{catest.NewCA(catest.Options{})} }\n\nfunc sign() {}\n"
	renamed = "package main\n\nimport memory \"" + standIn + "\"\n\nvar ca = memory.NewCA(memory.Options{})\n"
	imports = "package main\n\nimport \"example.com/acme/client\"\n\nfunc open() { client.Dial() }\n"
	below   = "package client\n\nimport \"" + standIn + "\"\n\nfunc Dial() { _ = catest.NewCA }\n"
)

func TestStandInIsFoundWhereverTheProgramHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a CA of one's own":       {map[string]string{"main.go": ownCA}, nil},
		"a test's":                {map[string]string{"main.go": ownCA, "main_test.go": usesCA, "testdata/ca.go": usesCA}, nil},
		"a function":              {map[string]string{"main.go": ownCA, "authority.go": usesCA}, []string{"authority.go: the function open"}},
		"a variable":              {map[string]string{"main.go": renamed}, []string{"main.go"}},
		"in an imported package":  {map[string]string{"main.go": imports, "client/dial.go": below}, []string{filepath.Join("client", "dial.go") + ": the function Dial"}},
		"in a package apart":      {map[string]string{"main.go": ownCA, "client/dial.go": below}, nil},
		"a module of other names": {map[string]string{"main.go": imports, "other/client/dial.go": below}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.files["go.mod"] = "// a comment\nmodule \"example.com/acme\"\n"
			for file, text := range c.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			found, err := standIns()
			for i, place := range found {
				if rel, err := filepath.Rel(dir, place); err == nil && filepath.IsAbs(place) {
					found[i] = rel
				}
			}
			if err != nil || !slices.Equal(found, c.want) {
				t.Errorf("found %q, %v; want %q", found, err, c.want)
			}
		})
	}
}

func TestStandInNeedsReadableModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := standIns(); err == nil || !strings.Contains(err.Error(), "no go.mod") {
		t.Errorf("without go.mod: %v", err)
	}
	for file, text := range map[string]string{"go.mod": "module example.com/acme\n", "main.go": "package"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := standIns(); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("with a file that does not parse: %v", err)
	}
}
