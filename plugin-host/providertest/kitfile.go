package providertest

import (
	"path/filepath"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// LoadKit reads a kit file, and the tokens that it names, into the target.
func (t *Target) LoadKit(path string) error {
	kit, err := conformance.LoadKit(path)
	t.Kit, t.Env = kit, kit.Env
	return err
}

// LoadSettings reads a file with settings alone, YAML or JSON: they replace the kit's.
func (t *Target) LoadSettings(path string) error {
	t.Kit.Settings, t.Kit.Dir = nil, filepath.Dir(path)
	return conformance.LoadYAML(path, &t.Kit.Settings)
}
