package provider_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider"
)

// The page for authors has a row for each field of what calls take and return.
func TestReferenceHasEachField(t *testing.T) {
	page, err := os.ReadFile("../../docs/provider-reference.md")
	must(t, err)
	for _, of := range []reflect.Type{
		reflect.TypeFor[provider.SignRequest](), reflect.TypeFor[provider.Certificate](), reflect.TypeFor[provider.Facts](),
		reflect.TypeFor[provider.JWTRequest](), reflect.TypeFor[provider.WITRequest](), reflect.TypeFor[provider.TokenRequest](), reflect.TypeFor[provider.ExchangedToken](),
		reflect.TypeFor[provider.RenewalInfo](), reflect.TypeFor[provider.Diagnostic](), reflect.TypeFor[provider.Error](),
	} {
		_, table, found := strings.Cut(string(page), "| `"+of.Name()+"` | is |\n")
		if table, _, _ = strings.Cut(table, "\n\n"); !found {
			t.Errorf("there is no table of %s", of.Name())
			continue
		}
		for field := range of.Fields() {
			if !strings.Contains(table, "`"+field.Name+"`") {
				t.Errorf("the table of %s does not name %s", of.Name(), field.Name)
			}
		}
	}
}
