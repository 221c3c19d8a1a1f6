//go:build e2e && linux

package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// roleOfMesh is Vault's role as docs/pod-certificates.md has it, with the names that docs/istio.md
// adds for the door and for istiod.
const roleOfMesh = `{
  "use_csr_sans": false, "use_csr_common_name": false, "require_cn": false, "key_type": "any",
  "allowed_uri_sans": "spiffe://cluster.local/*", "allow_localhost": false, "allow_ip_sans": false, "max_ttl": "24h",
  "allowed_domains": "countersign-ra.countersign.svc,istiod.istio-system.svc,istiod-remote.istio-system.svc,istio-pilot.istio-system.svc",
  "allow_bare_domains": true
}`

// vault is a real server, which scripts/get-vault builds.
type vault struct {
	Address, Token string
	folder         string
	client         *http.Client
}

// startVault runs Vault until the test ends, with a root and the role mesh.
func startVault(t *testing.T) *vault {
	t.Helper()
	root, template := certtest.Root(t), certtest.Leaf(t, time.Hour)
	template.DNSNames = []string{"localhost"}
	server, v := root.Issue(t, template), &vault{folder: proctest.Folder(t)}
	put(t, v.folder, map[string][]byte{
		"server.pem": pki.EncodeCertificates([]*x509.Certificate{server.Cert}), "key.pem": keyText(t, server),
		"root.pem": pki.EncodeCertificates([]*x509.Certificate{root.Cert}),
	})
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), programs.Foreign(t, "COUNTERSIGN_VAULT"), filepath.Join(v.folder, "server.pem"), filepath.Join(v.folder, "key.pem"))
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // it ends with that
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("vault: %v\n%s", err, log.String())
		}
	})
	if err := json.NewDecoder(stdout).Decode(v); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root.Cert)
	v.client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"}}}
	v.ask(t, "sys/mounts/pki", `{"type": "pki", "config": {"max_lease_ttl": "87600h"}}`)
	v.ask(t, "pki/root/generate/internal", `{"common_name": "Example root", "key_type": "ec", "ttl": "87600h"}`)
	v.ask(t, "pki/roles/mesh", roleOfMesh)
	write(t, filepath.Join(v.folder, "token"), v.Token)
	return v
}

// ask calls Vault's HTTP API: a POST if there is a body.
func (v *vault) ask(t *testing.T, path, body string) []byte {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+v.Address+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", v.Token)
	answer, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s: %s: %s, %v", path, answer.Status, text, err)
	}
	return text
}

// roots are those of its engine.
func (v *vault) roots(t *testing.T) *pki.Bundle {
	t.Helper()
	roots, err := pki.ParseBundle(v.ask(t, "pki/ca/pem", ""))
	if err != nil {
		t.Fatal(err)
	}
	return roots
}

// provider is the entry of a configuration for it.
func (v *vault) provider() string {
	return "{name: vault, accept_longer_ttl: true, settings: {url: 'https://" + v.Address + "', root_file: " + v.folder + "/root.pem, server_name: localhost, role: mesh, login: {method: token, token_file: " + v.folder + "/token}}}"
}
