package stepca

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
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

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// step is step-ca as far as the provider uses it, from its API
// (smallstep.com/docs, and api/ of its source): tokens are verified and used once.
type step struct {
	*httptest.Server
	*catest.CA
	provisioner *jose.JSONWebKey // public
	folder      string

	mu      sync.Mutex
	used    []string            // ids of tokens
	asked   []string            // paths
	replace http.HandlerFunc    // answers all in its stead
	sent    []map[string]string // bodies
	rekeys  bool
}

func newStep(t *testing.T) *step {
	t.Helper()
	s := &step{CA: catest.NewCA(catest.Options{Intermediates: 1}), folder: t.TempDir(), rekeys: true}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.write(t, "root.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	private := newJWK(t)
	public := private.Public()
	s.provisioner = &public
	text, err := private.MarshalJSON()
	must(t, err)
	s.write(t, "key.json", text)
	return s
}

func newJWK(t *testing.T) *jose.JSONWebKey {
	t.Helper()
	key, err := pki.GenerateKey("")
	must(t, err)
	return &jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "ES256"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *step) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(s.folder, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// urlOf parses one that need not be valid.
func urlOf(text string) setting.URL {
	parsed, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return setting.URL{URL: *parsed}
}

func (s *step) settings() Settings {
	return Settings{
		URL: urlOf(s.URL), RootFile: setting.File(filepath.Join(s.folder, "root.pem")),
		Provisioner: "admin", KeyFile: setting.File(filepath.Join(s.folder, "key.json")),
	}
}

func (s *step) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(t.Context(), settings)
	must(t, err)
	return c
}

func (s *step) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	readAhead(r)
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	replace := s.replace
	s.mu.Unlock()
	switch path := r.URL.Path; {
	case replace != nil:
		replace(w, r)
	case path == rootsPath:
		answer(w, http.StatusCreated, map[string]any{"crts": []string{string(s.Bundle().PEM())}})
	case path == signPath:
		s.sign(w, r)
	case path == rekeyPath:
		s.rekey(w, r)
	case path == "/root/"+sum(s.Certificate()):
		answer(w, http.StatusOK, map[string]any{"ca": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))})
	default:
		fail(w, http.StatusNotFound, "root certificate was not found")
	}
}

// readAhead takes the body in before there is an answer: a connection that is closed
// with a part of it unread is reset, and what was answered may be lost.
func readAhead(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
}

func answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]any{"status": status, "message": message})
}

func sum(cert *x509.Certificate) string { return pki.Fingerprint(cert) }

func (s *step) sign(w http.ResponseWriter, r *http.Request) {
	var body map[string]string
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "error reading request body")
		return
	}
	s.mu.Lock()
	s.sent = append(s.sent, body)
	s.mu.Unlock()
	if no := s.authorize(body["ott"], body["csr"]); no != "" {
		fail(w, http.StatusUnauthorized, no)
		return
	}
	s.issue(w, body["csr"])
}

// authorize returns why a token is invalid.
func (s *step) authorize(ott, csr string) string {
	token, err := jwt.ParseSigned(ott, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "error parsing jwk token"
	}
	var got claims
	if err := token.Claims(s.provisioner, &got); err != nil {
		return "error parsing jwk claims"
	}
	wants := jwt.Expected{Issuer: "admin", AnyAudience: jwt.Audience{s.URL + signPath}, Time: time.Now()}
	if err := got.ValidateWithLeeway(wants, time.Minute); err != nil {
		return "invalid jwk claims: " + err.Error()
	}
	block, _ := pem.Decode([]byte(csr))
	digest := sha256.Sum256(block.Bytes)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || got.Confirmation.Fingerprint != base64.RawURLEncoding.EncodeToString(digest[:]):
		return "certificate request fingerprint does not match"
	case slices.Contains(s.used, got.ID):
		return "token already used"
	case len(got.SANs) != len(parsed.URIs)+len(parsed.DNSNames)+len(parsed.IPAddresses):
		return "the names differ"
	}
	s.used = append(s.used, got.ID)
	return ""
}

func (s *step) issue(w http.ResponseWriter, csr string) {
	cert, err := s.CSRSign(context.Background(), ca.SignRequest{ID: "x", CSR: []byte(csr), TTL: time.Hour})
	if err != nil {
		fail(w, http.StatusForbidden, err.Error())
		return
	}
	var chain []string
	for block, rest := pem.Decode(cert.Chain); block != nil; block, rest = pem.Decode(rest) {
		chain = append(chain, string(pem.EncodeToMemory(block)))
	}
	answer(w, http.StatusCreated, signed{Leaf: chain[0], Chain: chain})
}

func (s *step) rekey(w http.ResponseWriter, r *http.Request) {
	if len(r.TLS.PeerCertificates) == 0 {
		fail(w, http.StatusBadRequest, "missing client certificate")
		return
	}
	if !s.rekeys {
		fail(w, http.StatusUnauthorized, "renew is disabled for provisioner 'admin'")
		return
	}
	var body map[string]string
	content, _ := io.ReadAll(r.Body)
	_ = json.NewDecoder(bytes.NewReader(content)).Decode(&body)
	s.issue(w, body["csr"])
}

// paths are what was asked for so far.
func (s *step) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

func (s *step) answerAll(replace http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace = replace
}

func jsonOf(r *http.Request, into any) error { return json.NewDecoder(r.Body).Decode(into) }
