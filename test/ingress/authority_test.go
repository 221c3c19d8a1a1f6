//go:build e2e && linux

package ingress_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// authority is a CA: of the shop's customers, of the agents, or of the service.
type authority struct{ *certtest.Pair }

func newAuthority(t *testing.T) authority { return authority{certtest.Root(t)} }

func (a authority) sign(t *testing.T, template *x509.Certificate) *certtest.Pair {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	return a.Issue(t, template)
}

// folder is one as the file provider takes it.
func (a authority) folder(t *testing.T) string {
	t.Helper()
	dir := proctest.Folder(t)
	for name, content := range map[string][]byte{"ca-key.pem": a.KeyPEM(t), "root-cert.pem": a.PEM(), "ca-cert.pem": a.PEM()} {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

// site is a certificate of the shop, as a secret of Kubernetes has it.
type site struct {
	shown *x509.Certificate
	data  map[string][]byte
}

func (a authority) site(t *testing.T) site {
	t.Helper()
	made := a.sign(t, &x509.Certificate{DNSNames: []string{"shop.example"}})
	return site{made.Cert, map[string][]byte{"tls.crt": made.PEM(), "tls.key": made.KeyPEM(t), "ca.crt": a.PEM()}}
}

// customer is what a customer of the shop dials with.
func (a authority) customer(t *testing.T) *tls.Config {
	t.Helper()
	made := a.sign(t, &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "customers.example", Path: "/one"}}})
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &tls.Config{
		RootCAs: roots, ServerName: "shop.example", MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{*made.TLS()},
	}
}
