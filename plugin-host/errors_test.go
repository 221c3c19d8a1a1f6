package pluginhost_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// A file that cannot run is refused by the start, as Find does not run it.
func TestRefusedErrorIsExportedByEveryStart(t *testing.T) {
	h := newHost(t, "good")
	script := filepath.Join(h.dir, "countersign-provider-script")
	must(t, os.WriteFile(script, []byte("#!/nowhere/interpreter\n"), 0o600))
	must(t, os.Chmod(script, 0o700)) //nolint:gosec // it has to be executable
	running := h.open(t, pluginhost.Entry{Name: "good"})
	entry := pluginhost.Entry{Name: "script"}
	for name, start := range map[string]func() error{
		"Open": func() error {
			_, err := pluginhost.Open(t.Context(), h.opts, entry)
			return err
		},
		"Reload": func() error { return running.Reload(t.Context(), pluginhost.Entry{Name: "good", Provider: "script"}) },
		"Probe": func() error {
			p, err := pluginhost.NewProbe(h.opts, entry)
			must(t, err)
			defer p.Close()
			return p.Launch()
		},
	} {
		if refused, ok := errors.AsType[*pluginhost.RefusedError](start()); !ok || refused.Path != script {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}
