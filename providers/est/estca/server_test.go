package estca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
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

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	web      = "spiffe://example.org/ns/shop/sa/web"
	user     = "factory"
	password = ca.Token("open-sesame-open-sesame")
)

// est is a server of RFC 7030 and RFC 8951 that takes nothing that they do not allow.
type est struct {
	*httptest.Server
	*catest.CA
	folder string

	mu      sync.Mutex
	prefix  string             // of the paths
	asked   []string           // operations
	attrs   []byte             // csrattrs in DER; none: 404
	pending map[string]bool    // requests that wait for approval, by their CSR; nil: none does
	after   string             // Retry-After of those
	chained bool               // the reply to an enrollment has the intermediates, too
	renews  bool               // simplereenroll is allowed
	keys    func(key any) bool // that are allowed
	replace http.HandlerFunc   // answers in its stead
}

func newServer(t *testing.T) *est {
	t.Helper()
	s := &est{CA: catest.NewCA(catest.Options{Intermediates: 1}), folder: t.TempDir(), prefix: "/.well-known/est/", renews: true, keys: func(any) bool { return true }}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.write(t, "root.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *est) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(s.folder, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

func (s *est) settings() Settings {
	parsed, err := url.Parse(s.URL)
	if err != nil {
		panic(err)
	}
	return Settings{URL: setting.URL{URL: *parsed}, TLS: setting.TLS{RootFile: filepath.Join(s.folder, "root.pem")}, Username: user}
}

func (s *est) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	return c
}

func (s *est) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *est) operations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *est) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // whole, or the connection is reset
	r.Body = io.NopCloser(bytes.NewReader(body))
	operation, ok := strings.CutPrefix(r.URL.Path, s.prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, operation)
	switch {
	case s.replace != nil:
		s.replace(w, r)
	case !ok:
		http.Error(w, "not here", http.StatusNotFound)
	case operation == cacerts && r.Method == http.MethodGet:
		answer(w, "application/pkcs7-mime", bagOf(append(s.Bundle().Certificates(), s.intermediates()...)))
	case operation == csrattrs && r.Method == http.MethodGet && s.attrs != nil:
		answer(w, "application/csrattrs", s.attrs)
	case (operation == enroll || operation == reenroll) && r.Method == http.MethodPost:
		s.enroll(w, r, operation, body)
	default:
		http.Error(w, "no such operation", http.StatusNotFound)
	}
}

func (s *est) intermediates() []*x509.Certificate {
	certs, err := pki.ParseCertificates(s.IstioFiles()["cert-chain.pem"])
	if err != nil {
		panic(err)
	}
	return certs
}

func answer(w http.ResponseWriter, kind string, der []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Transfer-Encoding", "base64")
	text := base64.StdEncoding.EncodeToString(der)
	for len(text) > 64 { // RFC 8951 has clients take line breaks
		_, _ = io.WriteString(w, text[:64]+"\r\n")
		text = text[64:]
	}
	_, _ = io.WriteString(w, text)
}

// enroll is RFC 7030, section 4.2.
func (s *est) enroll(w http.ResponseWriter, r *http.Request, operation string, body []byte) {
	der, err := base64.StdEncoding.DecodeString(string(body))
	if err != nil || r.Header.Get("Content-Type") != "application/pkcs10" {
		http.Error(w, "want application/pkcs10 in base64", http.StatusUnsupportedMediaType)
		return
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil || csr.CheckSignature() != nil {
		http.Error(w, "the request has no proof of possession", http.StatusBadRequest)
		return
	}
	if status, says := s.admit(r, operation, csr); status != http.StatusOK {
		http.Error(w, says, status)
		return
	}
	if s.pending != nil && !s.pending[string(body)] {
		s.pending[string(body)] = true
		w.Header().Set("Retry-After", s.after)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	reply, err := s.CSRSign(r.Context(), ca.SignRequest{CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	certs, err := pki.ParseCertificates(reply.Chain)
	if err != nil {
		panic(err)
	}
	if !s.chained {
		certs = certs[:1]
	}
	answer(w, "application/pkcs7-mime; smime-type=certs-only", bagOf(certs))
}

// admit authenticates and authorizes.
func (s *est) admit(r *http.Request, operation string, csr *x509.CertificateRequest) (status int, says string) {
	name, given, _ := r.BasicAuth()
	switch {
	case !s.keys(csr.PublicKey):
		return http.StatusBadRequest, "bad CSR"
	case operation == reenroll && !s.renews:
		return http.StatusForbidden, "re-enrollment is off"
	case operation == reenroll && !s.mayRenew(r.TLS, csr):
		return http.StatusBadRequest, "the subject changed, or the certificate is not one of this CA"
	case operation == reenroll, name == user && given == password.Reveal():
		return http.StatusOK, ""
	case name == user:
		return http.StatusUnauthorized, "not with the password " + given
	case name != "":
		return http.StatusForbidden, "no such user, and not with the password " + given
	}
	return http.StatusUnauthorized, "log in"
}

func (s *est) mayRenew(state *tls.ConnectionState, csr *x509.CertificateRequest) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	old := state.PeerCertificates[0]
	pool := x509.NewCertPool()
	for _, cert := range s.intermediates() {
		pool.AddCert(cert)
	}
	_, err := old.Verify(x509.VerifyOptions{Roots: s.Bundle().Pool(), Intermediates: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	names := slices.Equal(old.DNSNames, csr.DNSNames) && slices.EqualFunc(old.URIs, csr.URIs, func(a, b *url.URL) bool { return *a == *b })
	return err == nil && names && bytes.Equal(old.RawSubject, csr.RawSubject)
}

// bagOf returns certificates as the PKCS #7 of RFC 7030, section 4.1.3.
func bagOf(certs []*x509.Certificate) []byte {
	var all []byte
	for _, cert := range certs {
		all = append(all, cert.Raw...)
	}
	type content struct{ Type asn1.ObjectIdentifier }
	inner, err := asn1.Marshal(struct {
		Version      int
		Digests      []asn1.RawValue `asn1:"set"`
		Content      content
		Certificates asn1.RawValue
		Signers      []asn1.RawValue `asn1:"set"`
	}{
		1, []asn1.RawValue{}, content{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}},
		asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: all}, []asn1.RawValue{},
	})
	if err != nil {
		panic(err)
	}
	der, err := asn1.Marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: inner}})
	if err != nil {
		panic(err)
	}
	return der
}

// hold puts a certificate for the names into files, as the agent's outputs do.
func (s *est) hold(t *testing.T, settings *Settings, chain []byte, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	settings.HeldCertFile = s.write(t, "held.pem", chain)
	settings.HeldKeyFile = s.write(t, "held-key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
