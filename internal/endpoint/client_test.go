package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyHTTPSURLsOfServersAreTaken(t *testing.T) {
	for text, want := range map[string]string{
		"https://issuer.example/path":        "",
		"https://[::1]:6443":                 "",
		"http://127.0.0.1:8080/keys":         "is not https",
		"http://localhost":                   "is not https",
		"ftp://issuer.example":               "is not https",
		"https://":                           "is no URL",
		"https:issuer.example":               "is no URL",
		"issuer.example":                     "is no URL",
		"/etc/passwd":                        "is no URL",
		"":                                   "is no URL",
		"https://issuer.example/\x00":        "is no URL",
		"https://me:secret@issuer.example/x": "has a user in it",
	} {
		err := CheckURL(text, false)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://127.9.9.9": true, "http://[::1]/x": true, "http://localhost:80": true,
		"http://10.0.0.1": false, "http://localhost.evil.example": false, "http://127.0.0.1.evil.example": false, "ftp://127.0.0.1": false,
		"http://0.0.0.0": false, "http://127.1": false,
	} {
		if err := CheckURL(text, true); (err == nil) != ok {
			t.Errorf("%q, loopback allowed: %v", text, err)
		}
	}
}

// newRoot makes a server certificate for 127.0.0.1 that is its own root.
func newRoot(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A cluster's roots rotate under a running agent.
func TestRootsThatAreReplacedCountFromTheNextRequestOn(t *testing.T) {
	before, after := newRoot(t), newRoot(t)
	var serves atomic.Pointer[tls.Certificate]
	serves.Store(&before)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serves.Load(), nil }}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	// httptest's own certificate is taken where a client names no host: drop it.
	server.TLS.Certificates = nil

	roots := filepath.Join(t.TempDir(), "roots.pem")
	write := func(certs ...tls.Certificate) {
		var text []byte
		for _, cert := range certs {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})...)
		}
		if err := os.WriteFile(roots, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := New(Options{RootFile: roots, KeepAlive: true})
	defer client.Close()
	mustAnswer := func(want bool) {
		t.Helper()
		if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); (err == nil) != want {
			t.Errorf("answered: %v; want %v", err, want)
		}
	}
	write(before)
	mustAnswer(true)
	serves.Store(&after)
	mustAnswer(true) // on the connection that is there
	write(after)
	mustAnswer(true)
	write(before)
	mustAnswer(false)
	write()
	mustAnswer(false)
}

func TestARequestEndsAtItsDeadline(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hold)
	client := New(Options{Timeout: 50 * time.Millisecond})
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("got %v", err)
	}
}

// A body that drips would keep a connection as long as it likes.
func TestABodyThatDripsEndsAtTheDeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	client := New(Options{Timeout: 50 * time.Millisecond})
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("got %v", err)
	}
}

func TestARedirectIsFollowedWithinTheServerOnly(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/within":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other.URL+"/secret-path", http.StatusFound)
		default:
			_, _ = w.Write([]byte(r.Header.Get("X-Test")))
		}
	}))
	defer server.Close()
	client := New(Options{})
	reply, err := client.Do(t.Context(), http.MethodGet, server.URL+"/within", http.Header{"X-Test": {"yes"}}, nil)
	if err != nil || string(reply.Body) != "yes" {
		t.Errorf("within: %q, %v", reply.Body, err)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if _, err := client.Do(t.Context(), method, server.URL+"/away", nil, []byte("x")); err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%s away: %v", method, err)
		}
	}
	if _, err := client.Do(t.Context(), http.MethodPost, server.URL+"/within", nil, nil); err == nil {
		t.Error("a POST was redirected")
	}
}
