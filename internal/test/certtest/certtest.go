// Package certtest makes certificates for tests: [Root] one to trust, [Pair.Leaf] one
// below it, [Pair.Issue] one of any template. Those that an authority would make come
// from catest; these need not be good.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Pair is a certificate and its key, ECDSA P-256.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Issue makes a pair with a new key, whose certificate p signs; a nil p makes a
// self-signed one. A template without a serial number gets a random one.
func (p *Pair) Issue(tb testing.TB, template *x509.Certificate) *Pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if p == nil {
		p = &Pair{template, key}
	}
	return &Pair{p.Sign(tb, template, key.Public()), key}
}

// Sign signs a certificate for a key that another party may hold.
func (p *Pair) Sign(tb testing.TB, template *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	tb.Helper()
	return Sign(tb, template, p.Cert, key, p.Key)
}

// Sign is [x509.CreateCertificate] for keys of any type, parsed.
func Sign(tb testing.TB, template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// SelfSigned is a pair without an issuer.
func SelfSigned(tb testing.TB, template *x509.Certificate) *Pair {
	tb.Helper()
	return (*Pair)(nil).Issue(tb, template)
}

// TLS is the pair as crypto/tls takes it, without what stands above it.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// PEM is the certificate.
func (p *Pair) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM is the key, as PKCS #8.
func (p *Pair) KeyPEM(tb testing.TB) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Files writes both into a folder of the test and returns the paths.
func (p *Pair) Files(tb testing.TB) (cert, key string) {
	tb.Helper()
	dir := tb.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, content := range map[string][]byte{cert: p.PEM(), key: p.KeyPEM(tb)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return cert, key
}

// Loopback is a server's certificate for 127.0.0.1 that is its own root.
func Loopback(tb testing.TB) *Pair {
	tb.Helper()
	return SelfSigned(tb, &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// Root is a CA that ends in 1000 hours, with a name of its own.
func Root(tb testing.TB) *Pair {
	tb.Helper()
	return SelfSigned(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: rand.Text()}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
}

// Leaf is below p, of the template [Leaf].
func (p *Pair) Leaf(tb testing.TB, ttl time.Duration, uris ...string) *Pair {
	tb.Helper()
	return p.Issue(tb, Leaf(tb, ttl, uris...))
}

// Leaf is the template of a server's and client's certificate for the DNS name "server"
// and the URIs, which ends in ttl.
func Leaf(tb testing.TB, ttl time.Duration, uris ...string) *x509.Certificate {
	tb.Helper()
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ttl),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: []string{"server"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, uri := range uris {
		parsed, err := url.Parse(uri)
		if err != nil {
			tb.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	return template
}
