package schematest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// kept has a folder for each minor release, with configurations that the release took. Together, those of
// a program have all of its settings.
const kept = "cmd/internal/schematest/testdata/kept"

// Kept checks that the program still takes each of its kept configurations, whose files begin with its
// name, and that those of the newest release have each setting of the schema in a file of the
// repository. refused are settings that the program always rejects. docs/versioning.md defines
// when a kept setting may be removed.
func Kept(t *testing.T, program, schema string, take func(text []byte) error, refused ...string) {
	t.Helper()
	releases, err := filepath.Glob(programs.File(t, kept+"/*"))
	if err != nil || len(releases) == 0 {
		t.Fatalf("%v: %v", releases, err)
	}
	slices.SortFunc(releases, byNumber)
	var set map[string]bool
	for _, release := range releases {
		set = map[string]bool{}
		files, err := filepath.Glob(filepath.Join(release, program+"-*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no configuration of %s: %v", release, program, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := take(text); err != nil {
				t.Errorf("%s of release %s is refused, see \"What an upgrade may change\" in docs/versioning.md:\n%v", filepath.Base(file), filepath.Base(release), err)
			}
			maps.Copy(set, settingsIn(t, text))
		}
	}
	for _, path := range settingsOf(t, programs.File(t, schema)) {
		if !set[path] && !slices.Contains(refused, path) {
			t.Errorf("%s is in no %s-*.yaml of %s: add it", path, program, releases[len(releases)-1])
		}
	}
}

// byNumber compares the folders of releases: 0.9 is before 0.10.
func byNumber(a, b string) int {
	number := func(folder string) (n [2]int) {
		_, _ = fmt.Sscanf(filepath.Base(folder), "%d.%d", &n[0], &n[1])
		return n
	}
	x, y := number(a), number(b)
	return slices.Compare(x[:], y[:])
}

// settingsOf returns the paths of all settings in the file of a schema.
func settingsOf(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return below(s, "")
}

func below(s *jsonschema.Schema, path string) (all []string) {
	for s.Items != nil {
		s = s.Items
	}
	for key, value := range s.Properties {
		all = append(all, path+key)
		all = append(all, below(value, path+key+".")...)
	}
	slices.Sort(all)
	return all
}

// settingsIn returns the paths of all keys in a YAML file.
func settingsIn(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	var file any
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	keysOf(file, "", set)
	return set
}

func keysOf(value any, path string, set map[string]bool) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			keysOf(one, path, set)
		}
	case map[string]any:
		for key, one := range value {
			set[path+key] = true
			keysOf(one, path+key+".", set)
		}
	}
}
