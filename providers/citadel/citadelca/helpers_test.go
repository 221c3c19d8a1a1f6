package citadelca

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const (
	webID    = "spiffe://example.org/ns/shop/sa/web"
	theToken = ca.Token("eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl")
)

// systemCA is the CA that this process's operating system trusts.
var systemCA = catest.NewCA(catest.Options{})

// scratch is a folder as long as the tests run.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "citadelca")
	if err != nil {
		panic(err)
	}
	scratch = dir
	// Read once in a process, so it is set before anything of TLS runs.
	file := filepath.Join(dir, "system.pem")
	if err := os.WriteFile(file, systemCA.Bundle().PEM(), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	write(t, path, content)
	return path
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// settings for this server, with its roots in a file.
func (i *istiod) settings(t *testing.T) Settings {
	t.Helper()
	s := Settings{Address: i.address}
	if i.tls != nil {
		s.RootFile = fileOf(t, i.tls.Bundle().PEM())
	}
	return s
}

func mustOpen(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask returns a request for web, and the agent's own check of its reply.
func ask(t *testing.T, token ca.Token) (ca.SignRequest, pki.Check) {
	t.Helper()
	req, key := testkit.Request(t, webID)
	req.Token = token
	return req, testkit.Check(t, req, key)
}

// mustSign has a request signed, and demands a reply that an agent takes.
func mustSign(t *testing.T, c *CA) *pki.Chain {
	t.Helper()
	req, check := ask(t, theToken)
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Passes(t, reply, check)
}

// mustFail demands an error of that reason that contains all of these, and no token.
func mustFail(t *testing.T, c *CA, want *ca.Error, says ...string) {
	t.Helper()
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, want, says...)
}

// mustBe demands an error of that reason that contains all of these, and no token.
func mustBe(t *testing.T, err error, want *ca.Error, says ...string) {
	t.Helper()
	testkit.Fails(t, err, theToken, want, says...)
}
