package pluginhost_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// asNobody connects as another user, and demands that the connection is closed
// without a byte.
func asNobody(t *testing.T, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nobody")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	install(t, dir, "stranger")
	cmd := exec.Command(filepath.Join(dir, "countersign-provider-stranger"))
	cmd.Dir = "/"
	cmd.Env = []string{asStranger + "=" + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Equal(out, []byte("closed")) {
		t.Errorf("the stranger saw %q, %v", out, err)
	}
}
