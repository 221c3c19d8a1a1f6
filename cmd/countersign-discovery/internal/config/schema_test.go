package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestDocsListExactlyTheSettings(t *testing.T) {
	deploytest.Settings(t, reflect.TypeFor[Config](), "docs/discovery.md")
}

func TestDocsExamplesAreValid(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/discovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("only %d examples", len(blocks))
	}
	for _, block := range blocks {
		if strings.HasPrefix(block[1], "# kustomization.yaml") {
			continue // kubernetes builds it
		}
		text := block[1] + "dev: true\n" // in place of the lock file, which has the pins
		if _, err := Parse("example.yaml", []byte(text)); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if err := deploytest.Valid(Schema, text); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

func TestSchemaMatchesServiceValidation(t *testing.T) {
	if err := deploytest.Valid(Schema, working); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"lisen: {}", "listen: {tsl: x}", "times: {stream: 5}", "log: {level: loud}", "authenticators: [{kind: password}]", "limits: {streams: many}", "trust_domains: [{own_ca: true}]"} {
		if deploytest.Valid(Schema, text) == nil {
			t.Errorf("%s is taken", text)
		}
		if _, err := Parse("c.yaml", []byte(spoiled(text))); err == nil {
			t.Errorf("the service takes %s", text)
		}
	}
}
