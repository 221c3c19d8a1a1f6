// Package schematest keeps the JSON Schemas of the programs' configuration files: each is made
// of the structs and their comments. A program's test calls [Check]; go test -update writes the
// file.
package schematest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/ondemand/budget"
)

var update = flag.Bool("update", false, "write the schemas anew")

// patterns are those of the types that all programs have.
var patterns = map[reflect.Type]string{
	reflect.TypeFor[agent.Duration](): duration,
	reflect.TypeFor[agent.FileMode](): fileMode,
	reflect.TypeFor[agent.Size]():     size,
	reflect.TypeFor[agent.Period]():   period,
	reflect.TypeFor[budget.Rate]():    rate,
}

// Check compares a file of the repository with the schema of C, a program's configuration.
// Descriptions come from the comments of [pluginhost.Entry], in the package of the agent's
// configuration, and in the Go files that the patterns in sources match, the last of which count; narrow lists the values that a setting
// can have.
func Check[C any](t *testing.T, name, title string, narrow func(*jsonschema.Schema), sources ...string) {
	t.Helper()
	s, err := schemaOf[C](title, patterns, goFiles(t, append([]string{"plugin-host/entry.go", "cmd/internal/config/*.go"}, sources...))...)
	if err != nil {
		t.Fatal(err)
	}
	Choose(s, "log.level", "debug", "info", "warn", "error")
	Choose(s, "log.format", "text", "json")
	narrow(s)
	want, err := text(s)
	if err != nil {
		t.Fatal(err)
	}
	file := programs.File(t, name)
	if *update {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v): go test -run Schema -update . in this folder", name, err)
	}
}

func goFiles(t *testing.T, patterns []string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(programs.File(t, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no file (%v)", pattern, err)
		}
		all = append(all, files...)
	}
	return all
}
