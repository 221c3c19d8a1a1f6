package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/schematest"
)

func TestKeptConfigurationsAreTaken(t *testing.T) {
	schematest.Kept(t, "discovery", "cmd/countersign-discovery/internal/config/schema.json", func(text []byte) error {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		_, err := Read(environ.Vars{"STEP_TOKEN=x"}, file)
		return err
	})
}
