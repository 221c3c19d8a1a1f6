// Package schema keeps the JSON Schemas of the programs' configuration files: each is made of
// the structs and their comments.
package schema

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	discovery "github.com/countersign-dev/countersign/control-plane/cmd/countersign-discovery/config"
	ra "github.com/countersign-dev/countersign/control-plane/cmd/countersign-ra/config"
	"github.com/countersign-dev/countersign/internal/test/programs"
	agent "github.com/countersign-dev/countersign/plugin-host/program/config"
)

var update = flag.Bool("update", false, "write the schemas anew")

func TestSchemasMatchStructs(t *testing.T) {
	check(t, "plugin-host/program/config/schema.json", ofAgent(t))
	check(t, "control-plane/cmd/countersign-discovery/config/schema.json", ofDiscovery(t))
	check(t, "control-plane/cmd/countersign-ra/config/schema.json", ofRA(t))
}

func check(t *testing.T, name string, s *jsonschema.Schema) {
	t.Helper()
	file := programs.File(t, name)
	want, err := text(s)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v): go test ./test/schema -update", name, err)
	}
}

// patterns are those of the types that both programs have.
var patterns = map[reflect.Type]string{
	reflect.TypeFor[agent.Duration](): duration,
	reflect.TypeFor[agent.FileMode](): fileMode,
	reflect.TypeFor[agent.Size]():     size,
}

// keyTypes are the values of key_type.
var keyTypes = []string{"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87"}

func ofAgent(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s := made[agent.Config](t, "Countersign's configuration")
	choose(s, "key_type", keyTypes...)
	choose(s, "secrets.key_type", keyTypes...)
	choose(s, "secrets.kind", agent.KeyPair, agent.TrustBundle)
	choose(s, "providers.identity_check", "exact", "trust-domain", "any")
	choose(s, "workloads.verified_by", agent.ByAuthority, agent.ByJWKS, agent.ByTokenReview)
	choose(s, "socket.spiffe_validator", "auto", "always", "never")
	at(s, "providers.sha256").Pattern = `^[0-9a-fA-F]{64}$`
	return s
}

// sections has what the configurations of the programs beside the agent share.
const sections = "control-plane/cmd/internal/settings/sections.go"

func ofDiscovery(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s := made[discovery.Config](t, "The configuration of countersign-discovery", "control-plane/cmd/countersign-discovery/config/config.go", sections)
	choose(s, "authenticators.kind", discovery.ByCertificate, discovery.ByJWT, discovery.ByKubernetes)
	return s
}

func ofRA(t *testing.T) *jsonschema.Schema {
	t.Helper()
	const folder = "control-plane/cmd/countersign-ra/config/"
	s := made[ra.Config](t, "The configuration of countersign-ra", folder+"*.go", sections)
	choose(s, "rules.usages", "any", "server", "client", "both")
	at(s, "rules.match.requests").Items.Enum = []any{ra.PodCertificateRequests, ra.CertificateSigningRequests, ra.IstioRequests, ra.CertManagerRequests}
	choose(s, "istio.csr_names", ra.CSRNamesIgnored, ra.CSRNamesHeld)
	at(s, "rules.match.kinds").Items.Enum = []any{"pod", "service-account", "node", "user", "namespace"}
	return s
}

// made makes the schema of C. Descriptions come from the comments in these files and in the
// package of the agent's configuration.
func made[C any](t *testing.T, title string, names ...string) *jsonschema.Schema {
	t.Helper()
	files, err := filepath.Glob(programs.File(t, "plugin-host/program/config/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		more, err := filepath.Glob(programs.File(t, name))
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: no file (%v)", name, err)
		}
		files = append(files, more...)
	}
	s, err := schemaOf[C](title, patterns, files...)
	if err != nil {
		t.Fatal(err)
	}
	choose(s, "log.level", "debug", "info", "warn", "error")
	choose(s, "log.format", "text", "json")
	return s
}
