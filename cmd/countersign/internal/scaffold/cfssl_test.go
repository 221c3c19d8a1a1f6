//go:build e2e

package scaffold_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// startCFSSL starts a CFSSL server that signs names below example.org for two days. It returns its
// URL and the file of its root, which also verifies the server.
func startCFSSL(t *testing.T) (url, roots string) {
	t.Helper()
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	ca := catest.NewCA(catest.Options{})
	files := ca.IstioFiles()
	files["server.pem"], files["server-key.pem"] = ca.Pair(time.Hour, "", "localhost")
	files["config.json"] = []byte(`{"signing": {"default": {"expiry": "48h", "usages": ["signing", "server auth", "client auth"],
		"name_whitelist": "^spiffe://example\\.org/|^([a-z-]+\\.)*example\\.org$"}}}`)
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	host, port, _ := net.SplitHostPort(address)
	server := exec.Command(programs.Foreign(t, "COUNTERSIGN_CFSSL"), "serve", "-address", host, "-port", port, "-config", "config.json",
		"-ca", "ca-cert.pem", "-ca-key", "ca-key.pem", "-tls-cert", "server.pem", "-tls-key", "server-key.pem")
	server.Dir = dir
	proctest.Start(t, server)
	awaitServer(t, address)
	return "https://localhost:" + port, filepath.Join(dir, "root-cert.pem")
}

func awaitServer(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A stranger writes a provider for real CFSSL with what "provider new" generates and the documents
// say, from an empty folder to a passed suite and the first certificate in an agent.
func TestStrangersProviderForCFSSLPassesSuite(t *testing.T) {
	code, err := filepath.Abs("testdata/cfssl")
	must(t, err)
	url, roots := startCFSSL(t)
	t.Setenv("PATH", filepath.Dir(programs.Path(t, "countersign"))+":"+os.Getenv("PATH"))
	t.Setenv("GOWORK", "off")
	base := proctest.Folder(t)
	dir := filepath.Join(base, "countersign-provider-cfssl")
	runIn(t, base, "countersign provider new cfssl")
	runIn(t, dir, "cp "+code+"/*.go . && go vet ./... && go build -o countersign-provider-cfssl .")
	runIn(t, dir, "countersign provider docs ./countersign-provider-cfssl > SETTINGS.md && countersign provider kit ./countersign-provider-cfssl > kit.yaml")
	edit(t, filepath.Join(dir, "kit.yaml"), "  url: FILL-IN", "  url: "+url, "# root_file: FILL-IN", "root_file: "+roots,
		"# refused_identity:", "refused_identity:", "# token_ignored:", "token_ignored:", "# wrong_settings: {}", `wrong_settings: {url: "ftp://ca"}`)
	runIn(t, dir, "go test ./...")
	runIn(t, dir, "countersign provider test ./countersign-provider-cfssl --kit kit.yaml --quiet > report.txt")
	passed(t, filepath.Join(dir, "report.txt"), "0 failed")
	runIn(t, dir, "! grep 'input is missing' report.txt")

	must(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(`socket: {path: ./sds.sock}
trust_domain: example.org
namespace: demo
service_account: web
providers:
- {name: cfssl, settings: {url: "`+url+`", root_file: "`+roots+`"}}
`), 0o600))
	runIn(t, dir, "countersign provider doctor ./countersign-provider-cfssl --config agent.yaml --sign")
	proctest.Start(t, commandIn(t, dir, "exec countersign agent --config agent.yaml --dev-provider cfssl=./countersign-provider-cfssl"))
	runIn(t, dir, "countersign secrets watch --socket ./sds.sock --for 1m --count 2 > watched.txt")
	passed(t, filepath.Join(dir, "watched.txt"), "spiffe://example.org/ns/demo/sa/web")
}

// edit replaces texts in a file, each of which must be there: old, new, old, new.
func edit(t *testing.T, path string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("%s has no %q:\n%s", path, pairs[i], text)
		}
	}
	must(t, os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600))
}

func passed(t *testing.T, path string, wants ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for _, want := range wants {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q:\n%s", filepath.Base(path), want, text)
		}
	}
}
