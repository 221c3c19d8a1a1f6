//go:build e2e && certmanager && linux

package real_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

const patience = 2 * time.Minute

// blocks are those of docs/cert-manager.md in a language.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	page, err := os.ReadFile(programs.File(t, "docs/cert-manager.md"))
	must(t, err)
	for _, block := range regexp.MustCompile("(?s)```(\\w*)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == language {
			all = append(all, block[2])
		}
	}
	return all
}

// elsewhere replaces what is different for the test. All of it must be there.
func elsewhere(t *testing.T, text string, changes map[string]string) string {
	t.Helper()
	for from, to := range changes {
		if !strings.Contains(text, from) {
			t.Fatalf("the page lacks %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// An operator does what the page says. The CA is a folder, as there is no Vault.
func TestRealPageLeadsToACertificate(t *testing.T) {
	s := prepare(t)
	s.manage()
	s.Namespace("cert-manager")
	base, err := filepath.Rel(s.folder, programs.File(t, "deploy/kustomize"))
	must(t, err)
	for _, text := range blocks(t, "yaml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		s.write(name, strings.ReplaceAll(text, "github.com/countersign-dev/countersign/deploy/kustomize", base))
	}
	config, err := os.ReadFile(filepath.Join(s.folder, "ra.yaml"))
	must(t, err)
	vault := regexp.MustCompile(`(?s)    settings:\n.*tokens/vault}\n`).FindString(string(config))
	here := elsewhere(t, string(config), map[string]string{
		vault: "    provider: file\n    settings: {dir: DIR/ca, self_signed: true}\n", "system_namespace: countersign": "system_namespace: countersign, kubeconfig: DIR/account",
		"lock: /usr/lib/countersign/countersign.lock": "dev: true", "runtime_dir: /run/countersign\n": "", `status: {probes: ":15021"}`: "audit: {file: DIR/audit.log}\nstatus: {address: 'unix:DIR/page'}",
	})
	commands := blocks(t, "sh")
	if len(commands) != 3 || vault == "" {
		t.Fatalf("the page has %d blocks of commands", len(commands))
	}
	s.page(commands[1])
	s.start(here)
	if out := s.page(commands[0]); !strings.Contains(out, "granted if asked for: *.{namespace}.apps.example.org") {
		t.Error(out)
	}
	s.page(strings.Replace(commands[2], "kubectl create namespace shop\n", "", 1)) // it is there
	s.secret("web-tls", web)
}

// page runs commands of the page.
func (s *site) page(commands string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = s.folder
	cmd.Env = []string{
		"HOME=" + s.folder, "KUBECONFIG=kubeconfig",
		"PATH=" + filepath.Dir(programs.Path(s.t, "countersign-ra")) + ":" + programs.Foreign(s.t, "COUNTERSIGN_KUBERNETES") + ":" + os.Getenv("PATH"),
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Warning") {
		s.t.Fatalf("%s: %v\n%s\nthe program:\n%s", commands, err, out, s.log())
	}
	return string(out)
}

func (s *site) log() string {
	if s.ra == nil {
		return ""
	}
	return s.ra.Log.String()
}
