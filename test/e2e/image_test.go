package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// What the image holds is what the sidecar's configuration wants: programs that nobody but
// their owner writes, and a pin for each provider.
func TestImageMatchesSidecarConfiguration(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	checked(t, "../..", "scripts/image-root", binaries(t), root)
	mustDo(t, filepath.WalkDir(filepath.Join(root, "usr"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) == ".lock" {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode() != 0o755 {
			t.Errorf("%s is %s", path, info.Mode())
		}
		return err
	}))
	text := readText(t, programs.File(t, "deploy/kustomize/sidecar/countersign.yaml"))
	if !strings.Contains(text, "lock: /usr/") {
		t.Errorf("no lock file of the image's is named:\n%s", text)
	}
	pod := t.TempDir() // what is mounted, below its working folder
	file := filepath.Join(pod, "countersign.yaml")
	writeWhole(t, file, []byte(strings.ReplaceAll(text, "lock: /usr/", "lock: "+root+"/usr/")))
	check := exec.Command(filepath.Join(root, "usr/bin/countersign"), "config", "validate", "--config", file, "--provider-dir", filepath.Join(root, "usr/lib/countersign/providers"))
	mustDo(t, os.MkdirAll(filepath.Join(pod, "var/run/secrets/istio"), 0o755))
	writeWhole(t, filepath.Join(pod, "var/run/secrets/istio/root-cert.pem"), nil)
	check.Dir = pod
	check.Env = []string{"COUNTERSIGN_NAMESPACE=shop", "COUNTERSIGN_SERVICE_ACCOUNT=web", "HOME=" + pod}
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
