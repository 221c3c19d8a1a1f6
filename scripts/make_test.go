package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTargetFailsWithoutItsProgram(t *testing.T) {
	see(t, "../Makefile")
	for target, get := range map[string]string{
		"e2e-pkcs11": "get-debian", "e2e-acme": "get-pebble", "e2e-est": "get-est-server", "e2e-step": "get-step-ca", "e2e-spire": "get-spire", "e2e-vault": "get-vault", "e2e-kubernetes": "get-kubernetes",
		"e2e-cert-manager": "get-kubernetes",
	} {
		dir := t.TempDir()
		must(t, exec.Command("mkdir", filepath.Join(dir, "scripts")).Run())
		for name, script := range map[string]string{get: "exit 7", "with-programs": `exec "$@"`} {
			// Another process writes it, see newClone.
			write := exec.Command("install", "-m", "755", "/dev/stdin", filepath.Join(dir, "scripts", name))
			write.Stdin = strings.NewReader("#!/bin/sh\n" + script + "\n")
			must(t, write.Run())
		}
		makefile, err := filepath.Abs("../Makefile")
		must(t, err)
		cmd := exec.Command("make", "-f", makefile, "GO=true", target)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "MAKEFLAGS=")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Error 7") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
}
