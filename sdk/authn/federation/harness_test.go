package federation

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	spifferation "github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var example = spiffeid.RequireTrustDomainFromString("example.org")

// newIssuer makes a pair that the parent signed, good for an hour.
func newIssuer(t testing.TB, parent *certtest.Pair, template *x509.Certificate) *certtest.Pair {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	return parent.Issue(t, template)
}

func newRoot(t testing.TB, name string) *certtest.Pair {
	t.Helper()
	return newIssuer(t, nil, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// serverOf makes a server's certificate with a SPIFFE ID, under the root.
func serverOf(t testing.TB, root *certtest.Pair, id string) tls.Certificate {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	leaf := newIssuer(t, root, &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return *leaf.TLS()
}

// publisher serves the bundle of example.org with go-spiffe's own handler.
type publisher struct {
	*httptest.Server
	bundle  *spiffebundle.Bundle
	handler atomic.Pointer[http.HandlerFunc]
	asked   atomic.Int32
}

// publish starts it; a nil certificate is a Web one.
func publish(t testing.TB, certificate *tls.Certificate, roots ...*x509.Certificate) *publisher {
	t.Helper()
	p := &publisher{bundle: spiffebundle.FromX509Authorities(example, roots)}
	handler, err := spifferation.NewHandler(example, p.bundle)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if other := p.handler.Load(); other != nil {
			(*other)(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	if certificate != nil {
		p.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
	}
	p.Config.ErrorLog = log.New(io.Discard, "", 0) // impostors are sent away in a handshake
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) answer(handler http.HandlerFunc) { p.handler.Store(&handler) }

func (p *publisher) rootFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustSource(t testing.TB, opts Options, endpoints ...Endpoint) *Source {
	t.Helper()
	s, err := New(endpoints, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try fetches once, as Run does.
func try(t testing.TB, s *Source) error {
	t.Helper()
	d := s.domains[example.Name()]
	got, err := d.fetch(t.Context())
	s.take(d, got, err)
	return err
}
