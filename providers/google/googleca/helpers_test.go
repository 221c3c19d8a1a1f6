package googleca

import (
	"context"
	"crypto"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	webID    = "spiffe://example.org/ns/shop/sa/web"
	theToken = ca.Token("ya29.c2VjcmV0LXRva2VuLW9mLWEtdGVzdA.c2lnbmF0dXJl")
	thePool  = "projects/shop-1/locations/us-central1/caPools/mesh"
	theID    = "5ff3a8c4-5c46-4f0b-a7e7-4a6d8a9b2a11"
)

// scratch is a folder as long as the tests run.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "googleca")
	if err != nil {
		panic(err)
	}
	scratch = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, content)
	return path
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func csrOf(t *testing.T, id pki.Identity) (crypto.Signer, []byte) {
	t.Helper()
	key, err := pki.GenerateKey("")
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	return key, csr
}

func identity(t *testing.T, spiffeID string, dns, ips []string) pki.Identity {
	t.Helper()
	id, err := pki.NewIdentity(spiffeID, dns, ips)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// pairOf has a CA sign the certificate of the server localhost.
func pairOf(t *testing.T, authority *catest.CA) tls.Certificate {
	t.Helper()
	signer, csr := csrOf(t, identity(t, "", []string{"localhost"}, nil))
	reply, err := authority.CSRSign(t.Context(), ca.SignRequest{CSR: csr})
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.EncodeKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(reply.Chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// ask returns a request for web, and the agent's own check of its reply.
func ask(t *testing.T) (ca.SignRequest, pki.Check) {
	t.Helper()
	id := identity(t, webID, nil, nil)
	key, csr := csrOf(t, id)
	return ca.SignRequest{ID: theID, CSR: csr, SubjectID: webID, TTL: time.Hour, Token: theToken},
		pki.Check{Key: key.Public(), Identity: id, Now: time.Now(), AskedUntil: time.Now().Add(time.Hour)}
}

// mustSign has a request signed, and demands a reply that an agent takes.
func mustSign(t *testing.T, c *CA) *pki.Chain {
	t.Helper()
	req, check := ask(t)
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return mustPass(t, reply, check)
}

func mustPass(t *testing.T, reply ca.Certificate, check pki.Check) *pki.Chain {
	t.Helper()
	var err error
	if check.Roots, err = pki.ParseBundle(reply.Roots); err != nil {
		t.Fatal(err)
	}
	chain, err := check.Chain(reply.Chain)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// mustFail demands an error of that reason that says all of these, and no token.
func mustFail(t *testing.T, c *CA, want *ca.Error, says ...string) {
	t.Helper()
	req, _ := ask(t)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, want, says...)
}

func mustBe(t *testing.T, err error, want *ca.Error, says ...string) {
	t.Helper()
	if err == nil || ca.ReasonFor(err) != want.Reason {
		t.Fatalf("got %v, want the reason %q", err, want.Reason)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, which lacks %q", err, text)
		}
	}
	if strings.Contains(err.Error(), theToken.Reveal()[:20]) {
		t.Errorf("the error has the token: %s", err)
	}
}

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// take returns what was logged since the last look.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// within bounds a test that would hang where the code does not give up.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
