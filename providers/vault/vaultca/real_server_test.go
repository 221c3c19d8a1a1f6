//go:build e2e

package vaultca

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// realVault is a running server, and its operator.
type realVault struct {
	folder   string
	client   *rest.Client
	root     ca.Token
	settings Settings // without a login
}

// startVault runs Vault until the test ends: a PKI engine with a root, the role "web",
// and the policy "agent" that may have it sign, both as in the README.
func startVault(t *testing.T) *realVault {
	t.Helper()
	binary := os.Getenv("COUNTERSIGN_VAULT")
	if binary == "" {
		t.Fatal("COUNTERSIGN_VAULT does not name Vault: `make check NAME=step` builds it")
	}
	r := &realVault{folder: t.TempDir()}
	cert, key := r.pair(t, catest.NewCA(catest.Options{}), "localhost")
	address, token := run(t, binary, cert, key)
	r.root = token
	r.settings = Settings{URL: urlOf("https://" + address), TLS: setting.TLS{RootFile: filepath.Join(r.folder, "localhost-root.pem"), ServerName: "localhost"}, Role: "web"}
	client, err := rest.New(rest.Config{URL: r.settings.URL, TLS: r.settings.TLS, Failure: words})
	must(t, err)
	r.client = client
	r.write(t, "sys/mounts/pki", `{"type":"pki","config":{"max_lease_ttl":"87600h"}}`)
	r.write(t, "pki/root/generate/internal", `{"common_name":"First","key_type":"ec","issuer_name":"first","ttl":"87600h"}`)
	r.write(t, "pki/roles/web", roleOfREADME(t))
	r.write(t, "sys/policies/acl/agent", policyOfREADME(t))
	return r
}

// pair writes a certificate of the authority for a name, its key, and the root. It has
// a common name: Vault's auth method "cert" calls the caller by that.
func (r *realVault) pair(t *testing.T, authority *catest.CA, name string) (cert, key string) {
	t.Helper()
	req, private := testkit.Request(t, web, name)
	authority.Next(1, catest.Fault{Break: func(draft *catest.Draft) { draft.Leaf.Subject.CommonName = name }})
	made, err := authority.CSRSign(t.Context(), req)
	must(t, err)
	cert, key = filepath.Join(r.folder, name+".pem"), filepath.Join(r.folder, name+"-key.pem")
	must(t, os.WriteFile(cert, made.Chain, 0o600))
	r.keep(t, name+"-key.pem", private)
	must(t, os.WriteFile(filepath.Join(r.folder, name+"-root.pem"), authority.Bundle().PEM(), 0o600))
	return cert, key
}

func (r *realVault) keep(t *testing.T, name string, key crypto.Signer) {
	t.Helper()
	text, err := pki.EncodeKey(key)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.folder, name), text, 0o600))
}

// run starts the server and returns when it answers. It ends with its standard input.
func run(t *testing.T, binary, cert, key string) (address string, token ca.Token) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(binary, cert, key)
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("vault: %v\n%s", err, log.String())
		}
	})
	var ready struct{ Address, Token string }
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatalf("vault did not start: %v", err)
	}
	return ready.Address, ca.Token(ready.Token)
}

// write is what an operator does; it returns the answer's data, or auth.
func (r *realVault) write(t *testing.T, path, body string) map[string]any {
	t.Helper()
	var reply struct{ Data, Auth map[string]any }
	call := rest.Call{Path: "/v1/" + path, Body: json.RawMessage(body), Header: http.Header{"X-Vault-Token": {r.root.Reveal()}}}
	var raw json.RawMessage
	err := r.client.Do(t.Context(), call, &raw)
	if err != nil && !strings.Contains(err.Error(), "invalid JSON") { // 204 has no body
		t.Fatalf("%s: %v", path, err)
	}
	_ = json.Unmarshal(raw, &reply)
	if reply.Auth != nil {
		return reply.Auth
	}
	return reply.Data
}

func (r *realVault) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// approle returns settings that log in with a session of that life.
func (r *realVault) approle(t *testing.T, lives string) Settings {
	t.Helper()
	r.write(t, "sys/auth/approle", `{"type":"approle"}`)
	r.write(t, "auth/approle/role/agent", `{"token_policies":"agent",`+lives+`}`)
	var role struct {
		Data struct {
			ID string `json:"role_id"`
		} `json:"data"`
	}
	must(t, r.client.Do(t.Context(), rest.Call{Path: "/v1/auth/approle/role/agent/role-id", Header: http.Header{"X-Vault-Token": {r.root.Reveal()}}}, &role))
	settings := r.settings
	settings.Login = Login{Method: AppRole, RoleID: role.Data.ID, SecretIDFile: setting.File(filepath.Join(r.folder, "secret-id"))}
	r.newSecret(t)
	return settings
}

func (r *realVault) newSecret(t *testing.T) {
	t.Helper()
	secret, _ := r.write(t, "auth/approle/role/agent/secret-id", `{}`)["secret_id"].(string)
	must(t, os.WriteFile(filepath.Join(r.folder, "secret-id"), []byte(secret), 0o600))
}

// signs asks for a certificate and checks all of it as the agent does.
func (r *realVault) signs(t *testing.T, c *CA, token ca.Token, names ...string) {
	t.Helper()
	req, key := testkit.Request(t, web, names...)
	req.Token = token
	cert, err := c.CSRSign(t.Context(), req)
	must(t, err)
	roots, err := c.Roots(t.Context())
	must(t, err)
	bundle, err := pki.ParseBundle(roots)
	must(t, err)
	want, err := pki.NewIdentity(web, names, nil)
	must(t, err)
	check := pki.Check{Key: key.Public(), Identity: want, Roots: bundle, Now: time.Now(), AskedUntil: time.Now().Add(time.Hour)}
	chain, err := check.Chain(cert.Chain)
	must(t, err)
	if leaf := chain.Leaf; len(leaf.ExtKeyUsage) != 2 || time.Until(leaf.NotAfter) < 59*time.Minute {
		t.Errorf("for %v until %s", leaf.ExtKeyUsage, leaf.NotAfter)
	}
}

// readme returns what stands between two marks of the README, so that it is tried.
func readme(t *testing.T, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text), from)
	part, _, closed := strings.Cut(rest, to)
	if !found || !closed {
		t.Fatalf("the README has nothing between %q and %q", from, to)
	}
	return part
}

func roleOfREADME(t *testing.T) string {
	t.Helper()
	return readme(t, "<<'EOF'\n", "EOF\n")
}

func policyOfREADME(t *testing.T) string {
	t.Helper()
	return asJSON(map[string]any{"policy": readme(t, "```hcl\n", "```")})
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// reviewer is a Kubernetes API server as far as Vault asks it.
func reviewer(t *testing.T, good string) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status := map[string]any{"authenticated": strings.Contains(string(body), good), "user": map[string]any{
			"username": "system:serviceaccount:default:agent", "uid": "5a4b1f2e-uid",
		}}
		w.WriteHeader(http.StatusCreated)
		answer(w, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// serviceAccount is a token of one; only the reviewer verifies its signature.
func serviceAccount(t *testing.T) ca.Token {
	t.Helper()
	part := func(value any) string { return base64.RawURLEncoding.EncodeToString([]byte(asJSON(value))) }
	return ca.Token(part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:default:agent", "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(),
		"kubernetes.io": map[string]any{"namespace": "default", "serviceaccount": map[string]string{"name": "agent", "uid": "5a4b1f2e-uid"}},
	}) + "." + part(uuid.NewString()))
}
