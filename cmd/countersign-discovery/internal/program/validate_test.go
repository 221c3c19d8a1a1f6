package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func TestServeAndValidateRefuseTheSameSettings(t *testing.T) {
	t.Parallel()
	const issuer = "cluster: {disabled: true}\nauthenticators: [{kind: jwt, issuer: us, audiences: [a], trust_domain: a}]"
	for name, c := range map[string]struct {
		text, want string
		serveOnly  bool // it can be told only by doing it
	}{
		"a setting":         {strings.Replace(alone, "listen:", "lisen:", 1), `unknown setting "lisen"`, false},
		"no such provider":  {strings.Replace(alone, "PROVIDERS", "dev: true\nproviders: [{name: vault}]", 1), `provider "vault" is not installed`, false},
		"another pin":       {strings.Replace(alone, "PROVIDERS", "providers: [{name: file, sha256: "+strings.Repeat("0a", 32)+"}]", 1), "the pin is", false},
		"no folder":         {strings.Replace(alone, "DIR/resources", "DIR/none", 1), "resources.folder is ", false},
		"no kubeconfig":     {strings.Replace(alone, "{disabled: true}", "{kubeconfig: DIR/none}", 1), `/none": stat `, false},
		"a bad kubeconfig":  {strings.Replace(alone, "{disabled: true}", "{kubeconfig: DIR/c.yaml}", 1), "cluster.kubeconfig is ", false},
		"no runtime_dir":    {alone + "runtime_dir: DIR/none\n", `runtime_dir is `, false},
		"a runtime_dir":     {alone + "runtime_dir: DIR/c.yaml\n", `that is not a folder`, false},
		"no initial bundle": {strings.Replace(alone, "own_ca: true", "bundle: {url: 'https://bundle.test', initial_file: DIR/none}", 1), "bundle.initial_file is ", false},
		"an issuer":         {strings.Replace(alone, "cluster: {disabled: true}", issuer, 1), `authenticators.0: JWT issuer "us"`, false},
		"no pod":            {strings.Replace(alone, "cluster: {disabled: true}\n", "", 1), "not running in a Kubernetes pod; name a kubeconfig", true},
		"the address":       {strings.Replace(alone, "127.0.0.1:0'}\ncert", "192.0.2.1:1'}\ncert", 1), `listen.tls is "192.0.2.1:1"`, true},
		"the page":          {strings.Replace(alone, "unix:DIR/page", "unix:DIR/c.yaml/page", 1), `c.yaml/page": `, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(files(t, c.text), "c.yaml")
			cmd := command(t.Context(), t, "serve", "--config", file)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != cli.ExitSettings || !strings.Contains(string(out), c.want) {
				t.Errorf("serve: %v, want exit code 2 and %q:\n%s", err, c.want, out)
			}
			if c.serveOnly {
				return
			}
			if out, code := says(t, environment(t), "config", "validate", "--config", file); code != cli.ExitSettings || !strings.Contains(out, c.want) {
				t.Errorf("config validate: exit code %d, want 2 and %q:\n%s", code, c.want, out)
			}
		})
	}
}

func TestValidateNotesWhatServeWouldWaitFor(t *testing.T) {
	t.Parallel()
	text := strings.Replace(alone, "cluster: {disabled: true}\n", "remotes: {folder: DIR/remotes}\n", 1)
	text = strings.Replace(text, "trust_domains: [", "trust_domains: [{name: a, roots_file: DIR/none.pem}, ", 1)
	out, code := says(t, environment(t), "config", "validate", "--config", filepath.Join(files(t, text), "c.yaml"))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for _, want := range []string{
		"note: cluster.kubeconfig is not set: serve needs a pod's account", "note: trust_domains.a.roots_file: stat ", "none.pem: no such file or directory; serve waits for it",
		"note: remotes.folder: ", "c.yaml is valid",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestValidateLooksIntoFolders(t *testing.T) {
	t.Parallel()
	dir := files(t, strings.Replace(alone, "cluster: {disabled: true}\n", "remotes: {folder: DIR/remotes}\n", 1))
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "remotes", "east.yaml"), "kind: Config\nclusters:\n- name: east\n  cluster: {sever: 'https://example.test'}\n")
	write(t, filepath.Join(dir, "resources", "bad.yaml"), "resources: [{name: x}]\n")
	write(t, filepath.Join(dir, "resources", "good.yaml"), `resources:
- {"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: in, address: {socket_address: {address: 0.0.0.0, port_value: 80}}}
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: idle}
`)
	out, code := says(t, environment(t), "config", "validate", "--config", filepath.Join(dir, "c.yaml"))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for _, want := range []string{
		"note: remotes.folder: file " + filepath.Join(dir, "remotes", "east.yaml") + ": kubeconfig: malformed (line 4, in clusters.0.cluster): unknown field",
		"note: resources.folder: bad.yaml: document 1, resources[0]",
		`note: resources.folder: good.yaml: cluster "idle" is used by no file`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestClusterIDsThatNoClusterHasAreShown(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	dir := files(t, inKubernetes+"trust_domains: [{name: cluster.local, own_ca: true, clusters: [Kubernetes, kubernetes]}]\n"+
		"secrets: {may_read_config_cluster: ['*', wets]}\n")
	write(t, filepath.Join(dir, "kube.yaml"), api.kubeconfig())
	p := start(t, dir)
	p.ready(t)
	shown := strings.Join(strings.Fields(p.status(t)), " ")
	for _, want := range []string{
		"wets unknown - - secrets.may_read_config_cluster names it", "kubernetes unknown - - trust_domains.cluster.local.clusters names it",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "Kubernetes unknown") {
		t.Error("a cluster that there is counts as unknown")
	}
	if _, page := p.page(t, "/"); !strings.Contains(page, "names an unknown cluster") {
		t.Errorf("the page does not say it:\n%s", page)
	}
}
