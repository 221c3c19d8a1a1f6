package googleca

import (
	"crypto/tls"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
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
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait more than they compute
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

// looseURL parses a URL that need not be valid.
func looseURL(text string) setting.URL {
	parsed, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return setting.URL{URL: *parsed}
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

// pairOf has a CA sign the certificate of the server localhost.
func pairOf(t *testing.T, authority *catest.CA) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(testkit.Pair(t, authority, testkit.Identity(t, "", []string{"localhost"}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// ask returns a request for web, and the agent's own check of its reply.
func ask(t *testing.T) (ca.SignRequest, pki.Check) {
	t.Helper()
	req, key := testkit.Request(t, webID)
	req.ID, req.Token = theID, theToken
	return req, testkit.Check(t, req, key)
}

// mustSign has a request signed, and demands a reply that an agent takes.
func mustSign(t *testing.T, c *CA) *pki.Chain {
	t.Helper()
	req, check := ask(t)
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Passes(t, reply, check)
}

// mustFail demands an error of that reason that contains all of these, and no token.
func mustFail(t *testing.T, c *CA, want *ca.Error, says ...string) {
	t.Helper()
	req, _ := ask(t)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, want, says...)
}

// mustBe demands an error of that reason that contains all of these, and no token.
func mustBe(t *testing.T, err error, want *ca.Error, says ...string) {
	t.Helper()
	testkit.Fails(t, err, theToken, want, says...)
}
