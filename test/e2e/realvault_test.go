//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// vault is a real Vault behind a gate. Its root is called "vault root".
type vault struct {
	*gate
	dir    string
	token  string
	client *http.Client
}

// startVault runs Vault with the role and the policy of the provider's README.
func startVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{dir: proctest.Folder(t)}
	root := certtest.Root(t)
	pair := root.Leaf(t, time.Hour)
	key, err := pki.EncodeKey(pair.Key)
	mustDo(t, err)
	for name, content := range map[string][]byte{
		"root.pem": pki.EncodeCertificates([]*x509.Certificate{root.Cert}), "cert.pem": pki.EncodeCertificates([]*x509.Certificate{pair.Cert}), "key.pem": key,
	} {
		writeWhole(t, filepath.Join(v.dir, name), content)
	}
	v.run(t)
	v.client = &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pki.NewBundle(root.Cert).Pool(), ServerName: "server", MinVersion: tls.VersionTLS12},
	}}
	v.write(t, "sys/mounts/pki", `{"type": "pki", "config": {"max_lease_ttl": "24h"}}`)
	v.write(t, "pki/root/generate/internal", `{"common_name": "vault root", "key_type": "ec", "ttl": "24h"}`)
	v.write(t, "pki/roles/mesh", `{"require_cn": false, "key_type": "ec", "max_ttl": "1h", "allowed_uri_sans": "spiffe://`+trustDomain+`/*"}`)
	v.write(t, "sys/policies/acl/agent", `{"policy": "path \"pki/sign/mesh\" {capabilities = [\"update\"]}"}`)
	var made struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	mustDo(t, json.Unmarshal(v.write(t, "auth/token/create", `{"policies": ["agent"], "ttl": "1h"}`), &made))
	writeWhole(t, filepath.Join(v.dir, "token"), []byte(made.Auth.ClientToken))
	return v
}

// run starts the server, which says where it is, and its root token, in a line that no log has.
func (v *vault) run(t *testing.T) {
	t.Helper()
	cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_VAULT"), filepath.Join(v.dir, "cert.pem"), filepath.Join(v.dir, "key.pem"))
	_, err := cmd.StdinPipe() // it ends with that
	mustDo(t, err)
	line, err := cmd.StdoutPipe()
	mustDo(t, err)
	proctest.Start(t, cmd)
	var ready struct{ Address, Token string }
	mustDo(t, json.NewDecoder(line).Decode(&ready))
	v.token, v.gate = ready.Token, startGate(t, ready.Address)
}

// write is what an operator does.
func (v *vault) write(t *testing.T, path, body string) (answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+v.address+"/v1/"+path, strings.NewReader(body))
	mustDo(t, err)
	req.Header.Set("X-Vault-Token", v.token)
	resp, err := v.client.Do(req)
	mustDo(t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	mustDo(t, err)
	if resp.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("vault: %s: %s", path, resp.Status)
	}
	return answer
}

// settings are the provider's.
func (v *vault) settings() map[string]any {
	return map[string]any{
		"url": "https://" + v.address, "server_name": "server", "root_file": filepath.Join(v.dir, "root.pem"), "role": "mesh",
		"login": map[string]any{"token_file": filepath.Join(v.dir, "token")},
	}
}

// gate is an address that leads to a server, or for a while nowhere.
type gate struct {
	address, to string

	mu   sync.Mutex
	away bool
	open map[net.Conn]bool
}

func startGate(t *testing.T, to string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	g := &gate{address: listener.Addr().String(), to: to, open: map[net.Conn]bool{}}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { g.pass(from) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); g.setAway(true); passing.Wait() })
	return g
}

// setAway breaks all connections, and each that comes, until it is back.
func (g *gate) setAway(away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = away
	for conn := range g.open {
		if away {
			_ = conn.Close()
		}
	}
}

func (g *gate) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer to.Close()
	if !g.enter(from) {
		return
	}
	defer g.leave(from)
	go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
	_, _ = io.Copy(from, to)
}

func (g *gate) enter(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.away {
		g.open[conn] = true
	}
	return !g.away
}

func (g *gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, conn)
}
