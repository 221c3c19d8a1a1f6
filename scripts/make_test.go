package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clone returns a folder with these scripts. Another process writes them, see newClone.
func clone(t *testing.T, scripts map[string]string) (check string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scripts")
	must(t, exec.Command("mkdir", dir).Run())
	for name, script := range scripts {
		write := exec.Command("install", "-m", "755", "/dev/stdin", filepath.Join(dir, name))
		write.Stdin = strings.NewReader(script)
		must(t, write.Run())
	}
	return filepath.Join(dir, "check")
}

func TestPartFailsWithoutItsProgram(t *testing.T) {
	see(t, "check")
	check, err := os.ReadFile("check")
	must(t, err)
	for part, get := range map[string]string{
		"pkcs11": "get-debian", "acme": "get-pebble", "est": "get-est-server", "step": "get-step-ca", "spire": "get-spire", "vault": "get-vault", "kubernetes": "get-kubernetes",
		"istio": "get-istio", "cert-manager": "get-kubernetes",
	} {
		path := clone(t, map[string]string{get: "#!/bin/sh\nexit 7\n", "toolchain": "#!/bin/sh\necho local\n", "check": string(check)})
		out, err := exec.Command(path, part).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
			t.Errorf("check %s: %v\n%s", part, err, out)
		}
	}
}

// A part that fails is named at the end, its output is shown, and no other part begins.
func TestCheckNamesPartsThatFail(t *testing.T) {
	see(t, "check")
	check, err := os.ReadFile("check")
	must(t, err)
	list, _, _ := strings.Cut(string(check), "\n# Imports,")
	_, runs, _ := strings.Cut(string(check), "\n# ready obtains")
	path := clone(t, map[string]string{"toolchain": "#!/bin/sh\necho local\n", "cache": "#!/bin/sh\n", "get-vault": "#!/bin/sh\nexit 124\n", "check": list + `
part_tree() { echo of the tree; }
part_lint() { echo of lint; false; echo not reached; }
part_fuzz() { echo of fuzz; }
part_clone() { return 124; }
part_vault() { echo of Vault; }
# ready obtains` + runs})
	for args, want := range map[string]struct {
		shown, missing []string
		fails          bool
	}{
		"tree lint fuzz": {
			shown:   []string{"== check tree\nof the tree\n", "== check lint\nof lint\n== check lint failed\n", "== FAILED: lint\n"},
			missing: []string{"not reached", "of fuzz"}, fails: true,
		},
		"tree fuzz":  {shown: []string{"of the tree", "of fuzz", "== took: fuzz "}, missing: []string{"FAILED"}},
		"clone tree": {shown: []string{"== FAILED: clone\n"}, missing: []string{"of the tree", "LEFT OUT"}, fails: true},
		"vault tree": {shown: []string{"of the tree", "== LEFT OUT: vault: its programs were not built within 75 minutes\n"}, missing: []string{"of Vault", "FAILED"}},
		"tree nuts":  {shown: []string{"check: unknown part nuts"}, missing: []string{"of the tree"}, fails: true},
	} {
		cmd := exec.Command(path, strings.Fields(args)...)
		cmd.Env = append(os.Environ(), "JOBS=1", "KEEP_GOING=")
		out, err := cmd.CombinedOutput()
		if (err != nil) != want.fails {
			t.Errorf("check %s: %v", args, err)
		}
		for _, text := range want.shown {
			if !strings.Contains(string(out), text) {
				t.Errorf("check %s: no %q in\n%s", args, text, out)
			}
		}
		for _, text := range want.missing {
			if strings.Contains(string(out), text) {
				t.Errorf("check %s: %q in\n%s", args, text, out)
			}
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
