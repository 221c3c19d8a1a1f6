package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"
)

// authority signs for both ends.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = a.sign(t, anAuthority("root"), &a.key.PublicKey)
	return a
}

// below is an authority that this one has signed.
func (a *authority) below(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	return &authority{a.sign(t, anAuthority("intermediate"), &key.PublicKey), key}
}

func anAuthority(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(1000 * time.Hour),
	}
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Minute)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) pem() []byte { return encode("CERTIFICATE", a.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// leaf returns a chain and key for the name.
func (a *authority) leaf(t *testing.T, name string, life time.Duration) (chain, keyPEM []byte) {
	t.Helper()
	return a.issue(t, &x509.Certificate{DNSNames: []string{name}, URIs: []*url.URL{spiffeID(name)}, NotAfter: time.Now().Add(life)})
}

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "test", Path: "/" + name}
}

// issue returns a chain and key of a certificate like this.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (chain, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, template, &key.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", cert.Raw), encode("PRIVATE KEY", der)
}
