package config

import (
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

func TestKeptConfigurationsAreTaken(t *testing.T) {
	schematest.Kept(t, "discovery", "cmd/countersign-discovery/internal/config/schema.json", func(text []byte) error {
		_, err := parse(environ.Vars{"STEP_TOKEN=x"}, "c.yaml", text, nil)
		return err
	})
}
