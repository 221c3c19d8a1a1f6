package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestSchemaMatchesServiceValidation(t *testing.T) {
	if err := deploytest.Valid(Schema, working); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"singers: []", "budget: {holder: many}", "log: {level: loud}", "signers: [{pod_certificates: {enabled: true}}]", "leader_election: {duration: 5}",
		"rules: [{name: a, names: {spiffe_id: 'spiffe://a/{pod}'}, usages: all}]", "rules: [{name: a, names: {spiffe_id: 'spiffe://a/{pod}'}, match: {kinds: [job]}}]",
		"rules: [{name: a, names: {spiffe_id: 'spiffe://a/{pod}'}, match: {requests: [pods]}}]", "authorities: [{name: vault, limits: {rate: fast}}]",
	} {
		if deploytest.Valid(Schema, text) == nil {
			t.Errorf("the schema takes %s", text)
		}
		if _, err := Parse("c.yaml", []byte(spoiled(text))); err == nil {
			t.Errorf("the service takes %s", text)
		}
	}
}

func TestConfigurationOfTheManifestsIsValid(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "deploy/kustomize/ra/ra.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	here := strings.Replace(string(text), "lock: /usr/lib/countersign/countersign.lock", "dev: true", 1) // the image has the file
	if err := deploytest.Valid(Schema, here); err != nil {
		t.Error(err)
	}
	if _, err := Parse("ra.yaml", []byte(here)); err != nil {
		t.Error(err)
	}
}

func TestDocsListExactlyTheSettings(t *testing.T) {
	deploytest.Settings(t, reflect.TypeFor[Config](), "docs/ra.md")
}

func TestExampleInDocsIsValid(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/ra.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if _, err := Parse("example.yaml", []byte(example+"dev: true\n")); err != nil || example == "" {
		t.Error(err)
	}
}
