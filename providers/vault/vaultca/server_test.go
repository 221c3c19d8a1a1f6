package vaultca

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	roleID    = "7c1b6f3e-role"
	secretID  = "0f2d9a54-secret-id-0f2d9a54"
	jwt       = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl"
	rootToken = "hvs.root-token-root-token-root"
)

// vault is the server as far as the provider uses it, from its API documentation
// (developer.hashicorp.com/vault/api-docs: secret/pki, auth, system): it verifies what
// it is sent, and its tokens end by the test's clock.
type vault struct {
	*httptest.Server
	*catest.CA
	folder    string
	namespace string

	mu        sync.Mutex
	clock     time.Time
	tokens    map[string]*given
	lease     time.Duration // 0: tokens do not end
	renewable bool
	longest   time.Duration // what renewing prolongs a token to, from its login
	secretID  string
	jwts      []string
	policy    bool // tokens may sign
	ownNames  bool // the role takes names from the call, not from the CSR
	issuers   [][]*x509.Certificate
	lists     map[string][]byte // by issuer

	asked   []string         // paths
	logins  int              // that were accepted
	sent    []map[string]any // bodies of CSRs
	replace http.HandlerFunc // answers all in its stead
}

// given is a token of the server.
type given struct{ ends, last time.Time }

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{
		CA: catest.NewCA(catest.Options{Intermediates: 1}), folder: t.TempDir(), clock: time.Now(),
		tokens: map[string]*given{rootToken: {}}, lease: time.Hour, renewable: true, longest: 24 * time.Hour,
		secretID: secretID, jwts: []string{jwt}, policy: true,
	}
	v.issuers = [][]*x509.Certificate{v.Bundle().Certificates()}
	v.lists = map[string][]byte{"issuer-0": bytes.Join(v.CRLs(catest.CRL{Number: 1}), nil)}
	v.Server = httptest.NewUnstartedServer(v)
	v.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	v.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	v.StartTLS()
	t.Cleanup(v.Close)
	v.write(t, "root.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw}))
	v.write(t, "secret-id", []byte(secretID+"\n"))
	v.write(t, "token", []byte(rootToken+"\n"))
	return v
}

func (v *vault) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(v.folder, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// settings log in by AppRole.
func (v *vault) settings() Settings {
	return Settings{
		URL: urlOf(v.URL + "/"), TLS: setting.TLS{RootFile: filepath.Join(v.folder, "root.pem")}, Role: "web",
		Login: Login{Method: AppRole, RoleID: roleID, SecretIDFile: setting.File(filepath.Join(v.folder, "secret-id"))},
	}
}

// urlOf parses one that need not be valid.
func urlOf(text string) setting.URL {
	parsed, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return setting.URL{URL: *parsed}
}

func (v *vault) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	c.now = v.now
	return c
}

func (v *vault) now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.clock
}

func (v *vault) pass(d time.Duration) {
	v.change(func() { v.clock = v.clock.Add(d) })
}

func (v *vault) change(to func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	to()
}

// answerAll has all requests answered by that; nil ends it.
func (v *vault) answerAll(replace http.HandlerFunc) { v.change(func() { v.replace = replace }) }

// paths returns what was asked for since it was last called.
func (v *vault) paths() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	asked := strings.Join(v.asked, " ")
	v.asked = nil
	return asked
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Read before there is an answer: a connection that is closed with a part of the
	// body unread is reset, and what was answered may be lost.
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	v.mu.Lock()
	v.asked = append(v.asked, strings.TrimPrefix(r.URL.Path, "/v1/"))
	replace := v.replace
	v.mu.Unlock()
	if replace != nil {
		replace(w, r)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch path := strings.TrimPrefix(r.URL.Path, "/v1/"); {
	case r.Header.Get("X-Vault-Request") != "true":
		refuse(w, http.StatusPreconditionFailed, "missing header 'X-Vault-Request'")
	case r.Header.Get("X-Vault-Namespace") != v.namespace:
		refuse(w, http.StatusNotFound, `no handler for route "`+path+`". route entry not found.`)
	case strings.HasPrefix(path, "auth/") && strings.HasSuffix(path, "/login"):
		v.login(w, r, strings.TrimSuffix(strings.TrimPrefix(path, "auth/"), "/login"))
	case strings.HasPrefix(path, "pki/issuer"):
		v.tellIssuers(w, r, path)
	default:
		v.authenticated(w, r, path)
	}
}

func (v *vault) authenticated(w http.ResponseWriter, r *http.Request, path string) {
	token := r.Header.Get("X-Vault-Token")
	held, ok := v.tokens[token]
	switch {
	case !ok || !held.ends.IsZero() && !v.clock.Before(held.ends):
		refuse(w, http.StatusForbidden, "permission denied")
	case path == "auth/token/lookup-self" && r.Method == http.MethodGet:
		ttl := int64(0)
		if !held.ends.IsZero() {
			ttl = int64(held.ends.Sub(v.clock) / time.Second)
		}
		answer(w, map[string]any{"data": map[string]any{"ttl": ttl, "renewable": v.renewable && ttl > 0, "id": token}})
	case path == "auth/token/renew-self" && r.Method == http.MethodPost:
		v.renew(w, token, held)
	case path == "auth/token/revoke-self" && r.Method == http.MethodPost:
		delete(v.tokens, token)
		w.WriteHeader(http.StatusNoContent)
	case v.policy && path == "pki/roles/web" && r.Method == http.MethodGet:
		answer(w, map[string]any{"data": map[string]any{"use_csr_sans": !v.ownNames, "use_csr_common_name": !v.ownNames}})
	case !v.policy || r.Method != http.MethodPost:
		refuse(w, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
	case path == "pki/sign/web" || path == "pki/sign-verbatim" || path == "pki/sign-verbatim/web":
		v.sign(w, r, path)
	case strings.HasPrefix(path, "pki/sign/"):
		refuse(w, http.StatusBadRequest, "unknown role: "+strings.TrimPrefix(path, "pki/sign/"))
	default:
		refuse(w, http.StatusNotFound, `no handler for route "`+path+`". route entry not found.`)
	}
}

func (v *vault) login(w http.ResponseWriter, r *http.Request, method string) {
	var body map[string]string
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.Header.Get("X-Vault-Token") != "":
		refuse(w, http.StatusBadRequest, "a login needs no token")
	case method == "approle" && (body["role_id"] != roleID || body["secret_id"] != v.secretID):
		refuse(w, http.StatusBadRequest, "invalid role or secret ID")
	case method == "kubernetes" && (body["role"] != "agent" || !slices.Contains(v.jwts, body["jwt"])):
		refuse(w, http.StatusForbidden, "permission denied")
	case method == "tls/cert" && (len(r.TLS.PeerCertificates) == 0 || body["name"] != "agent"):
		refuse(w, http.StatusBadRequest, "invalid certificate or no client certificate supplied")
	default:
		v.logins++
		token := fmt.Sprintf("hvs.session-%d-of-%s-in-this-test", v.logins, method)
		held := &given{}
		if v.lease > 0 {
			held.ends, held.last = v.clock.Add(v.lease), v.clock.Add(v.longest)
		}
		v.tokens[token] = held
		v.give(w, token, held)
	}
}

func (v *vault) give(w http.ResponseWriter, token string, held *given) {
	seconds := int64(0)
	if !held.ends.IsZero() {
		seconds = int64(held.ends.Sub(v.clock) / time.Second)
	}
	answer(w, map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": seconds, "renewable": v.renewable}})
}

func (v *vault) renew(w http.ResponseWriter, token string, held *given) {
	if !v.renewable {
		refuse(w, http.StatusBadRequest, "lease is not renewable")
		return
	}
	held.ends = v.clock.Add(v.lease)
	if held.ends.After(held.last) {
		held.ends = held.last
	}
	v.give(w, token, held)
}

func (v *vault) sign(w http.ResponseWriter, r *http.Request, path string) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	v.sent = append(v.sent, body)
	csr, _ := body["csr"].(string)
	parsed, err := pki.ParseCSR([]byte(csr))
	if err != nil {
		refuse(w, http.StatusBadRequest, "csr contains no data")
		return
	}
	names := parsed.DNSNames
	if v.ownNames {
		joined, _ := body["alt_names"].(string)
		names = strings.FieldsFunc(joined, func(r rune) bool { return r == ',' })
	}
	for _, name := range names {
		if strings.HasPrefix(path, "pki/sign/") && !strings.HasSuffix(name, ".example.org") {
			refuse(w, http.StatusBadRequest, "subject alternate name "+name+" not allowed by this role")
			return
		}
	}
	if v.ownNames && strings.HasPrefix(path, "pki/sign/") {
		v.Next(1, catest.Fault{Break: func(draft *catest.Draft) { takeNames(draft.Leaf, body) }})
	}
	cert, err := v.CSRSign(context.Background(), ca.SignRequest{ID: "x", CSR: []byte(csr), TTL: lifetime(body)})
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, map[string]any{"data": reply(append(certificates(cert.Chain), v.Bundle().Certificates()...))})
}

// lifetime returns what was asked for, an hour by default.
func lifetime(body map[string]any) time.Duration {
	text, _ := body["ttl"].(string)
	if asked, err := time.ParseDuration(text); err == nil {
		return asked
	}
	return time.Hour
}

// takeNames is what a role does with use_csr_sans=false and use_csr_common_name=false.
func takeNames(leaf *x509.Certificate, body map[string]any) {
	text := func(field string) []string {
		joined, _ := body[field].(string)
		return slices.DeleteFunc(strings.Split(joined, ","), func(s string) bool { return s == "" })
	}
	leaf.Subject, leaf.URIs, leaf.DNSNames, leaf.IPAddresses = pkix.Name{}, nil, text("alt_names"), nil
	for _, name := range text("uri_sans") {
		uri, _ := url.Parse(name)
		leaf.URIs = append(leaf.URIs, uri)
	}
	for _, ip := range text("ip_sans") {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(ip))
	}
}

// signatures returns how many CSRs were sent.
func (v *vault) signatures() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.sent)
}

func answer(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

func refuse(w http.ResponseWriter, status int, words string) {
	w.WriteHeader(status)
	answer(w, map[string]any{"errors": []string{words}})
}
