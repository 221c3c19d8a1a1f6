package config_test

import (
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

// keyTypes are the values of key_type.
var keyTypes = []string{"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87"}

func TestSchemaIsMadeOfStructs(t *testing.T) {
	schematest.Check[config.Config](t, "cmd/internal/config/schema.json", "Countersign's configuration", func(s *jsonschema.Schema) {
		schematest.Choose(s, "key_type", keyTypes...)
		schematest.Choose(s, "secrets.key_type", keyTypes...)
		schematest.Choose(s, "secrets.kind", config.KeyPair, config.TrustBundle)
		schematest.Choose(s, "providers.identity_check", "exact", "trust-domain", "any")
		schematest.Choose(s, "workloads.verified_by", config.ByAuthority, config.ByJWKS, config.ByTokenReview)
		schematest.Choose(s, "socket.spiffe_validator", "auto", "always", "never")
		secrets := s.Properties["secrets"].Items // a rule has a name by default
		secrets.Required = nil
		for _, key := range []string{"name", "match", "match_file"} {
			secrets.AnyOf = append(secrets.AnyOf, &jsonschema.Schema{Required: []string{key}})
		}
		schematest.At(s, "providers.sha256").Pattern = `^[0-9a-fA-F]{64}$`
	})
}
