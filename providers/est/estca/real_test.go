//go:build e2e

package estca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const patience = 2 * time.Minute

// realServer is GlobalSign's EST server with its example of a CA, which signs for every client. Its
// labels select its demands: "csrattrs" the example of RFC 7030, "triggererrors" errors that
// common names choose.
type realServer struct {
	folder    string
	authority *catest.CA
	address   string
}

func startServer(t *testing.T) realServer {
	t.Helper()
	binary := os.Getenv("COUNTERSIGN_EST_SERVER")
	if binary == "" {
		t.Fatal("COUNTERSIGN_EST_SERVER does not name the EST server: `make check NAME=est` builds it")
	}
	r := realServer{t.TempDir(), catest.NewCA(catest.Options{Intermediates: 1}), testkit.FreeAddress(t)}
	files := r.authority.IstioFiles()
	files["ca.pem"] = append(files["cert-chain.pem"], files["root-cert.pem"]...)
	files["server.pem"], files["server-key.pem"] = testkit.Pair(t, r.authority, testkit.Identity(t, "", []string{"localhost"}, []string{"127.0.0.1"}))
	config, err := json.Marshal(map[string]any{
		"mock_ca": map[string]any{"certificates": r.path("ca.pem"), "private_key": r.path("ca-key.pem")},
		"tls": map[string]any{
			"listen_address": r.address, "certificates": r.path("server.pem"), "private_key": r.path("server-key.pem"), "client_cas": []string{r.path("root-cert.pem")},
		},
		"allowed_hosts": []string{"127.0.0.1"}, "timeout": 30, "rate_limit": 1000,
	})
	must(t, err)
	files["config.json"] = config
	for name, content := range files {
		must(t, os.WriteFile(r.path(name), content, 0o600))
	}
	var output strings.Builder
	server := exec.Command(binary, "-config", r.path("config.json"))
	server.Stdout, server.Stderr = &output, &output
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("the EST server:\n%s", output.String())
		}
	})
	r.await(t)
	return r
}

func (r realServer) path(name string) string { return filepath.Join(r.folder, name) }

func (r realServer) settings() Settings {
	return Settings{URL: setting.URL{URL: url.URL{Scheme: "https", Host: r.address}}, TLS: setting.TLS{RootFile: r.path("root-cert.pem")}}
}

func (r realServer) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	return c
}

func (r realServer) await(t *testing.T) {
	t.Helper()
	c, ctx := r.open(t, r.settings()), testkit.Within(t, patience)
	for {
		_, err := c.Roots(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, ca.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the EST server does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestRealServerEnrollsAndReenrolls(t *testing.T) {
	r := startServer(t)
	settings := r.settings()
	settings.HeldCertFile, settings.HeldKeyFile = r.path("held.pem"), r.path("held-key.pem")
	c := r.open(t, settings)
	for range 3 {
		req, key := testkit.Request(t, web, "web.example.org")
		reply, err := c.CSRSign(t.Context(), req)
		must(t, err)
		check := testkit.Check(t, req, key)
		check.AskedUntil = time.Time{}
		check.Roots, err = pki.ParseBundle(mustRoots(t, c))
		must(t, err)
		chain, err := check.Chain(reply.Chain)
		must(t, err)
		if len(chain.Certificates) != 2 {
			t.Errorf("the chain has %d certificates", len(chain.Certificates))
		}
		text, err := pki.EncodeKey(key)
		must(t, err)
		must(t, os.WriteFile(settings.HeldCertFile, reply.Chain, 0o600))
		must(t, os.WriteFile(settings.HeldKeyFile, text, 0o600))
	}
	// The server compares subject and names byte for byte, and wants a certificate of its own.
	csr, err := pki.ParseCSR(requestOf(t, ""))
	must(t, err)
	if !c.holds(csr) {
		t.Fatal("the certificate of the server cannot be renewed")
	}
	if _, err := c.ask(t.Context(), reenroll, csr, rest.Call{Pair: settings.held()}); err != nil {
		t.Errorf("simplereenroll: %v", err)
	}
}

func TestRealServersRefusals(t *testing.T) {
	r := startServer(t)
	for name, want := range map[string]*ca.Error{"Forbidden": ca.ErrDenied, "Deferred": ca.ErrPending, "Unknown": ca.ErrInternal} {
		settings := r.settings()
		settings.Label = "triggererrors"
		c := r.open(t, settings)
		csr, err := pki.ParseCSR(requestOf(t, "Trigger Error "+name))
		must(t, err)
		_, err = c.issue(t.Context(), csr, "")
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "Deferred" && ca.RetryAfter(err) != 10*time.Minute {
			t.Errorf("come back after %s", ca.RetryAfter(err))
		}
	}
}

func TestRealServersDemands(t *testing.T) {
	r := startServer(t)
	labelled := r.open(t, r.settings())
	labelled.settings.Label = "csrattrs" // RFC 7030, section 3.2.2 forbids a label that is an operation
	if d, err := labelled.demands(t.Context()); err != nil || !d.challenge || len(d.keys) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := r.open(t, r.settings()).demands(t.Context()); err != nil || d.challenge || len(d.keys) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// requestOf returns a CSR for web with a common name, which chooses an error.
func requestOf(t *testing.T, name string) []byte {
	t.Helper()
	key, csr := testkit.CSR(t, testkit.Identity(t, web, []string{"web.example.org"}, nil))
	if name == "" {
		return csr
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, crypto.Signer(key))
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
