package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sources returns what answers each name, as one line.
func sources(t *testing.T, c Config) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, s := range c.Sources() {
		all[s.Name] = strings.Join(slices.Concat(s.Providers, s.Files), " ") + s.Socket + ": " + s.Rule
	}
	return all
}

func TestSourceLineOfSettingIsFound(t *testing.T) {
	c, _ := mustLoad(t, strings.ReplaceAll(`---
# a comment
dev: true

providers:
- settings: &mine
    dir: /a
    deep:
      er: 1
  name: file
- name: second
  provider: file
  settings: *mine
default_provider: file
namespace: demo
service_account: >-
  web
socket:
  allow_uids:
  - 1
  - 2
`, "\t", "  "), nil)
	for path, want := range map[string]string{
		"dev": "countersign.yaml:3", "providers.file.settings.dir": "countersign.yaml:7", "providers.file.settings.deep.er": "countersign.yaml:9",
		"providers.second.provider": "countersign.yaml:12", "providers.second.settings.dir": "countersign.yaml:13",
		"service_account": "countersign.yaml:16", "socket.allow_uids": "countersign.yaml:19", "ttl": "default",
	} {
		if got := explained(t, c, path); got.From != want {
			t.Errorf("%s comes from %s, want %s", path, got.From, want)
		}
	}
}

func TestSourcesListOneSourceAndRulePerName(t *testing.T) {
	c, _ := mustLoad(t, `
dev: true
providers: [{name: file}, {name: other}]
default_provider: file
secrets: [{name: api, provider: other, dns_names: [a]}, {name: web, dns_names: [b]}]
files: {secrets: [{name: legacy, chain: /c.pem, key: /k.pem}], folders: [/certs]}
`, identity)
	want := map[string]string{
		"default": "file: CA_ADDR", "ROOTCA": "file: it signs default", "api": "other: secrets.api.provider names it",
		"web": "file: default_provider names it", "legacy": "/c.pem /k.pem: files.secrets names them",
		"file-cert:<chain>~<key>": "/certs: the name contains the path, and files.folders allows these folders",
		"file-root:<ca>":          "/certs: the name contains the path, and files.folders allows these folders",
		"file-root:system":        "system: the name is built in, and files.folders is not empty",
	}
	want["default"] = "file: default_provider names it"
	got := sources(t, c)
	for name, source := range want {
		if got[name] != source {
			t.Errorf("%s: got %q, want %q", name, got[name], source)
		}
	}
	if len(got) != len(want) || c.Sources()[0].Name != "default" || c.Sources()[1].Name != "ROOTCA" {
		t.Errorf("got %q", got)
	}
}

func TestSourcesListMountedFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("etc/certs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("etc", "certs", "root-cert.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := mustLoad(t, "{dev: true, providers: [{name: file}], files: {folders: []}}", identity)
	want := map[string]string{"default": "file: it is the only configured provider", "ROOTCA": "etc/certs/root-cert.pem: the files are mounted"}
	if got := sources(t, c); len(got) != 2 || got["default"] != want["default"] || got["ROOTCA"] != want["ROOTCA"] {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := explained(t, c, "files.secrets.ROOTCA.roots"); got.From != "files.mounted" {
		t.Errorf("got %+v", got)
	}
	c, _ = mustLoad(t, "files: {mounted: only, folders: []}", nil)
	if got := sources(t, c)["default"]; got != "etc/certs/cert-chain.pem etc/certs/key.pem: files.mounted is only" {
		t.Errorf("got %q", got)
	}
}

// beside reads a configuration while another program serves the socket.
func beside(t *testing.T, file string, environ ...string) (Config, error) {
	t.Helper()
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveSocketTo(&Foreign{UID: 7})
	return c, c.Complete()
}

func TestOnlyConfiguredSecretsAreServedBesideForeignSocket(t *testing.T) {
	c, err := beside(t, "", "CA_ADDR=istiod:15012")
	if err != nil {
		t.Fatal(err) // no identity, pin or token is needed any more
	}
	if len(c.Providers)+len(c.Secrets)+len(c.Files.Secrets) != 0 || c.ListenPath() != "./var/run/secrets/credential-uds/files-socket" {
		t.Errorf("providers %v, secrets %v, files %v at %s", c.Providers, c.Secrets, c.Files.Secrets, c.ListenPath())
	}
	const rule = "./var/run/secrets/workload-spiffe-uds/socket: another program (uid 7) serves ./var/run/secrets/workload-spiffe-uds/socket"
	if got := sources(t, c); got["default"] != rule || got["ROOTCA"] != rule || len(got) != 5 {
		t.Errorf("got %q", got)
	}
}

func TestOtherSecretsAreSignedBesideForeignSocket(t *testing.T) {
	c, err := beside(t, `
dev: true
providers: [{name: file}]
secrets: [{name: api, dns_names: [a.example]}, {name: default, dns_names: [b.example]}]
files: {secrets: [{name: ROOTCA, roots: /roots.pem}]}
outputs: [{name: web, secret: api, folder: /out, files: [{name: a.pem, content: combined}]}]
`)
	if err != nil {
		t.Fatal(err)
	}
	got := sources(t, c)
	if len(c.Secrets) != 1 || got["api"] != "file: it is the only provider" || got["ROOTCA"] != "/roots.pem: files.secrets names them" {
		t.Errorf("secrets %v; sources %q", c.Secrets, got)
	}
}

func TestOutputOfForeignSecretIsRefused(t *testing.T) {
	_, err := beside(t, "", "OUTPUT_CERTS=/out")
	wantError(t, err, `outputs.istio.secret is "default": another program (uid 7) serves ./var/run/secrets/workload-spiffe-uds/socket and serves it; remove the output, or stop that program`)
}
