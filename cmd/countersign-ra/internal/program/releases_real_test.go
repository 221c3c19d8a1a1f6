//go:build e2e && linux

package program

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// As docs/versioning.md promises, neighbouring releases read the configuration and records
// of each other, in both directions (BEFORE names a commit in place of the release before).
func TestRealReleasesReplaceEachOther(t *testing.T) {
	t.Parallel()
	clone := filepath.Join(proctest.Folder(t), "clone")
	build := exec.Command(programs.File(t, "scripts/build-of"), "before", "v0.1.0", clone, "./cmd/countersign-ra")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	before, now := filepath.Join(clone, "built", "countersign-ra"), programs.Path(t, "countersign-ra")
	api := newAPIServer(t)
	dir := files(t, api, usual)
	var bundle any
	for i, program := range []string{before, now, before} {
		pod := "web-" + string(rune('0'+i))
		api.addPod(t, "shop", pod)
		cmd := exec.Command(program, "serve", "--config", filepath.Join(dir, "c.yaml"))
		cmd.Env = environment(t)
		r := launch(t, dir, cmd)
		r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", pod) != nil })
		r.until(t, "the trust bundle is written", func() bool { return api.get("clustertrustbundles", "", bundleName) != nil })
		r.measures(t, `countersign_ra_root_record_usable{authority="file",engine="kubernetes"} 1`, `countersign_ra_roots{authority="file",engine="kubernetes",phase="trusted"} 1`)
		r.Stop(syscall.SIGTERM)
		if strings.Contains(r.Log.String(), "record") {
			t.Errorf("release %d logged about its records:\n%s", i, r.Log)
		}
		published := api.get("clustertrustbundles", "", bundleName).At("spec", "trustBundle")
		if i > 0 && published != bundle {
			t.Errorf("release %d published other roots", i)
		}
		bundle = published
	}
}
