package config

import (
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

func TestSchemaIsMadeOfStructs(t *testing.T) {
	const folder = "cmd/countersign-discovery/internal/config/"
	schematest.Check[Config](t, folder+"schema.json", "The configuration of countersign-discovery", func(s *jsonschema.Schema) {
		schematest.Choose(s, "authenticators.kind", ByCertificate, ByJWT, ByKubernetes)
	}, folder+"config.go", "cmd/internal/settings/sections.go")
}
