package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// estServer is a server of EST in front of a CA in memory.
type estServer struct {
	*httptest.Server
	authority *catest.CA
	user      string       // wanted: none, "token" or "password" or "certificate"
	status    atomic.Int32 // answered instead; 0: none
	form      atomic.Int32 // of its answers: inDER, inBER or inPEM
	settings  map[string]any
}

// The forms of certificates: as RFC 7030 has them, in DER or as a stream, or against it.
const (
	inDER = iota
	inBER
	inPEM
)

func newServer(t *testing.T, user string) *estServer {
	t.Helper()
	s := &estServer{authority: catest.NewCA(catest.Options{}), user: user}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	s.settings = map[string]any{
		"url": s.URL + "/.well-known/est", "root_file": write("root.pem", pki.EncodeCertificates([]*x509.Certificate{s.Certificate()})), "poll": "1s", "timeout": "1m",
	}
	switch user {
	case "password":
		s.settings["user"], s.settings["password"] = "me", "sesame-open"
	case "certificate":
		chain, key := certificateOf(t, s.authority, "client.example")
		s.settings["client_cert_file"], s.settings["client_key_file"] = write("cert.pem", chain), write("key.pem", key)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func csrFor(t *testing.T, name string) (csr, key []byte) {
	t.Helper()
	signer, err := pki.GenerateKey("")
	must(t, err)
	id, err := pki.NewIdentity("", []string{name}, nil)
	must(t, err)
	csr, err = pki.CreateCSR(signer, id)
	must(t, err)
	key, err = pki.EncodeKey(signer)
	must(t, err)
	return csr, key
}

func certificateOf(t *testing.T, authority *catest.CA, name string) (chain, key []byte) {
	t.Helper()
	csr, key := csrFor(t, name)
	cert, err := authority.CSRSign(t.Context(), ca.SignRequest{CSR: csr})
	must(t, err)
	return cert.Chain, key
}

// knows reports whether a request may have a certificate.
func (s *estServer) knows(r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	switch s.user {
	case "token":
		return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") && !strings.HasSuffix(r.Header.Get("Authorization"), "refused")
	case "password":
		return password == "sesame-open"
	case "certificate":
		return len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].DNSNames[0] == "client.example"
	}
	return true
}

func (s *estServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status := int(s.status.Load()); status != 0 {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "not now: "+r.Header.Get("Authorization"), status)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /.well-known/est/cacerts":
		s.answer(w, s.authority.Bundle().PEM())
	case "POST /.well-known/est/simpleenroll":
		s.enroll(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *estServer) enroll(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	der := make([]byte, len(body))
	n, wrong := base64.StdEncoding.Decode(der, body)
	switch {
	case !s.knows(r):
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	case err != nil || wrong != nil || r.Header.Get("Content-Type") != "application/pkcs10":
		http.Error(w, "that is no CSR", http.StatusBadRequest)
		return
	}
	cert, err := s.authority.CSRSign(r.Context(), ca.SignRequest{CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der[:n]})})
	if err != nil {
		http.Error(w, "that is a bad CSR", http.StatusBadRequest)
		return
	}
	s.answer(w, cert.Chain)
}

// answer sends certificates.
func (s *estServer) answer(w http.ResponseWriter, text []byte) {
	certsOnly := certsOnlyDER
	switch s.form.Load() {
	case inPEM:
		_, _ = w.Write(text)
		return
	case inBER:
		certsOnly = certsOnlyBER
	}
	var certs []byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certs = append(certs, block.Bytes...)
	}
	_, _ = io.WriteString(base64Lines{w}, base64.StdEncoding.EncodeToString(certsOnly(certs)))
}

// certsOnlyBER is a SignedData whose elements were begun before their lengths were known.
func certsOnlyBER(certs []byte) []byte {
	open := func(tag byte, parts ...[]byte) []byte {
		return slices.Concat([]byte{tag, 0x80}, slices.Concat(parts...), []byte{0, 0})
	}
	id := func(last byte) []byte { return []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, last} }
	signed := open(0x30, []byte{2, 1, 1}, open(0x31), open(0x30, id(1)), open(0xa0, certs), open(0x31))
	return open(0x30, id(2), open(0xa0, signed))
}

func certsOnlyDER(certs []byte) []byte {
	set := asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: certs}
	empty := asn1.RawValue{Tag: asn1.TagSet, IsCompound: true}
	signed, _ := asn1.Marshal(struct {
		Version    int
		Algorithms asn1.RawValue
		Content    struct{ Type asn1.ObjectIdentifier }
		Certs      asn1.RawValue
		Signers    asn1.RawValue
	}{1, empty, struct{ Type asn1.ObjectIdentifier }{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}}, set, empty})
	der, _ := asn1.Marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: signed}})
	return der
}

// base64Lines breaks lines as MIME does.
type base64Lines struct{ io.Writer }

func (b base64Lines) Write(text []byte) (n int, err error) {
	for line := text; len(line) > 0 && err == nil; line = line[min(76, len(line)):] {
		_, err = b.Writer.Write(append(line[:min(76, len(line)):min(76, len(line))], "\r\n"...))
	}
	return len(text), err
}

func TestConformance(t *testing.T) {
	s := newServer(t, "token")
	conformance.Run(t, conformance.Kit{
		Settings: s.settings, WrongSettings: map[string]any{"url": "http://est.example"}, TokenRequired: true, RefusedToken: "refused", FixedLifetime: true,
		CallTimeout: conformance.Duration(time.Minute), // one connection for each call takes a busy machine its time
		Keys:        []pki.KeyType{pki.ECDSAP256, pki.RSA2048},
	}, provider.Define("est", "0.1.0", open).Provider)
}

func TestEachCredentialIsPresented(t *testing.T) {
	for _, user := range []string{"token", "password", "certificate"} {
		s := newServer(t, user)
		client, err := provider.Define("est", "0.1.0", open).Open(t.Context(), s.settings)
		must(t, err)
		req := ca.SignRequest{}
		req.CSR, _ = csrFor(t, "web.example")
		if user == "token" {
			req.Token = "a-token"
		}
		for _, form := range []int32{inDER, inBER, inPEM} {
			s.form.Store(form)
			cert, err := client.CSRSign(t.Context(), req)
			if err != nil || !strings.Contains(string(cert.Chain), "BEGIN CERTIFICATE") || string(cert.Roots) != string(s.authority.Bundle().PEM()) {
				t.Errorf("%s, form %d: %v", user, form, err)
			}
		}
		other := newServer(t, map[string]string{"token": "password", "password": "certificate", "certificate": "token"}[user])
		s.settings["url"], s.settings["root_file"] = other.settings["url"], other.settings["root_file"]
		client, err = provider.Define("est", "0.1.0", open).Open(t.Context(), s.settings)
		must(t, err)
		if _, err := client.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrUnauthenticated) {
			t.Errorf("%s is refused with %v", user, err)
		}
	}
}

func TestBusyServerIsAskedLater(t *testing.T) {
	s := newServer(t, "password")
	client, err := provider.Define("est", "0.1.0", open).Open(t.Context(), s.settings)
	must(t, err)
	req := ca.SignRequest{}
	req.CSR, _ = csrFor(t, "web.example")
	for status, want := range map[int32]*ca.Error{202: ca.ErrUnavailable, 429: ca.ErrRateLimited, 503: ca.ErrUnavailable} {
		s.status.Store(status)
		if _, err := client.CSRSign(t.Context(), req); !errors.Is(err, want) || ca.RetryAfter(err) != 7*time.Second || strings.Contains(err.Error(), "bWU6") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestRotatedRootsAreReported(t *testing.T) {
	s := newServer(t, "")
	client, err := provider.Define("est", "0.1.0", open).Open(t.Context(), s.settings)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	told := 0
	err = client.(ca.RootWatcher).WatchRoots(ctx, func(roots []byte) error {
		if string(roots) != string(s.authority.Bundle().PEM()) {
			t.Errorf("got %s", roots)
		}
		if told++; told == 2 {
			cancel()
			return nil
		}
		s.authority.Rotate()
		return nil
	})
	if told != 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("told %d times, %v", told, err)
	}
}

// What an author has to write for a CA of this kind fits on a screen.
func TestMainHasSeventyLinesOfCode(t *testing.T) {
	text, err := os.ReadFile("main.go")
	must(t, err)
	lines := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if t.Logf("main.go has %d lines of code", lines); lines > 70 {
		t.Errorf("main.go has %d lines of code, 70 are the goal", lines)
	}
}
