package config_test

import (
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

func TestKeptConfigurationsAreTaken(t *testing.T) {
	schematest.Kept(t, "agent", "cmd/internal/config/schema.json", func(text []byte) error {
		c, _, err := config.Read(config.Input{FileName: "c.yaml", File: text, Environ: []string{"STEP_TOKEN=x"}})
		if err != nil {
			return err
		}
		return c.Complete()
	})
}
