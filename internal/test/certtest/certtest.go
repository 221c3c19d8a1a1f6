// Package certtest makes certificates for tests: [Root] one to trust, [Pair.Leaf] one
// below it, [Pair.Issue] one of any template. Those that an authority would make come
// from catest; these need not be good.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
	"time"
)

// Pair is a certificate and its key, ECDSA P-256.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Issue makes a pair with a new key, whose certificate p signs, whoever it is; a nil one
// has it sign itself. A template without a serial number gets a random one.
func (p *Pair) Issue(tb testing.TB, template *x509.Certificate) *Pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	above := &Pair{template, key}
	if p != nil {
		above = p
	}
	der, err := x509.CreateCertificate(rand.Reader, template, above.Cert, key.Public(), above.Key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &Pair{cert, key}
}

// SelfSigned is a pair under nobody.
func SelfSigned(tb testing.TB, template *x509.Certificate) *Pair {
	tb.Helper()
	return (*Pair)(nil).Issue(tb, template)
}

// TLS is the pair as crypto/tls takes it, without what stands above it.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
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
