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
		"e2e-istio": "get-kubernetes", "e2e-cert-manager": "get-kubernetes",
	} {
		dir := t.TempDir()
		must(t, exec.Command("mkdir", filepath.Join(dir, "scripts")).Run())
		for name, script := range map[string]string{get: "exit 7", "toolchain": "echo local", "with-programs": `exec "$@"`} {
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

// Go itself passes over the toolchain of go.work where GOTOOLCHAIN is local.
func TestToolchainOfCloneReplacesLocalOne(t *testing.T) {
	clone := t.TempDir()
	see(t, "toolchain", "../go.work")
	must(t, exec.Command("mkdir", filepath.Join(clone, "scripts")).Run())
	must(t, exec.Command("cp", "toolchain", filepath.Join(clone, "scripts")).Run())
	must(t, exec.Command("cp", "../go.work", clone).Run())
	for set, want := range map[string]string{"local": "go1.27.1", "auto": "auto", "go1.99.9+path": "go1.99.9+path"} {
		// A go that would obtain what GOTOOLCHAIN names, were it the real one.
		bin := t.TempDir()
		write := exec.Command("install", "-m", "755", "/dev/stdin", filepath.Join(bin, "go"))
		write.Stdin = strings.NewReader("#!/bin/sh\necho " + set + "\n")
		must(t, write.Run())
		cmd := exec.Command(filepath.Join(clone, "scripts", "toolchain"))
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("GOTOOLCHAIN=%s: got %s, %v, want %s", set, out, err, want)
		}
	}
}
