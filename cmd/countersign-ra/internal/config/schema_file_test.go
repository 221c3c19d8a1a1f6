package config

import (
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

func TestSchemaIsMadeOfStructs(t *testing.T) {
	const folder = "cmd/countersign-ra/internal/config/"
	schematest.Check[Config](t, folder+"schema.json", "The configuration of countersign-ra", func(s *jsonschema.Schema) {
		schematest.Choose(s, "rules.usages", "any", "server", "client", "both")
		schematest.At(s, "rules.match.requests").Items.Enum = []any{PodCertificateRequests, CertificateSigningRequests, IstioRequests, CertManagerRequests}
		schematest.Choose(s, "istio.csr_names", CSRNamesIgnored, CSRNamesHeld)
		schematest.At(s, "rules.match.kinds").Items.Enum = []any{"pod", "service_account", "node", "user", "namespace"}
	}, folder+"*.go", "cmd/internal/settings/sections.go")
}
