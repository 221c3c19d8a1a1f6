package provider_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider"
)

// The page for authors has a row for each field of what CSRSign takes and returns.
func TestReferenceHasEachField(t *testing.T) {
	page, err := os.ReadFile("../../docs/provider-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[provider.SignRequest](), reflect.TypeFor[provider.Certificate]()} {
		_, rows, _ := strings.Cut(string(page), "\n| `"+of.Name()+"` | is |\n")
		table, _, _ := strings.Cut(rows, "\n\n")
		for field := range of.Fields() {
			if name := "`" + field.Name + "`"; !strings.Contains(table, name) {
				t.Errorf("%s has no row for %s", of.Name(), name)
			}
		}
	}
}
