//go:build e2e && linux

package ingress_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// authority is a CA: of the shop's customers, of the agents, or of the service.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	var a authority
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert, key
}

func (a authority) pem() []byte { return pki.EncodeCertificates([]*x509.Certificate{a.cert}) }

// folder is one as the file provider takes it.
func (a authority) folder(t *testing.T) string {
	t.Helper()
	dir := proctest.Folder(t)
	key, err := pki.EncodeKey(a.key)
	must(t, err)
	for name, content := range map[string][]byte{"ca-key.pem": key, "root-cert.pem": a.pem(), "ca-cert.pem": a.pem()} {
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
	cert, key := a.sign(t, &x509.Certificate{DNSNames: []string{"shop.example"}})
	text, err := pki.EncodeKey(key)
	must(t, err)
	return site{cert, map[string][]byte{"tls.crt": pki.EncodeCertificates([]*x509.Certificate{cert}), "tls.key": text, "ca.crt": a.pem()}}
}

// customer is what a customer of the shop dials with.
func (a authority) customer(t *testing.T) *tls.Config {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "customers.example", Path: "/one"}}})
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{
		RootCAs: roots, ServerName: "shop.example", MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
	}
}
