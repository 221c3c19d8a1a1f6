package e2e

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// writeCA puts a new self-signed CA into dir, in the layout that the file provider
// reads, and returns its certificate. Where there was one, it is replaced.
func writeCA(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	return writeCAOf(t, dir, name, pki.ECDSAP256)
}

// writeCAOf is writeCA with another type of key.
func writeCAOf(t *testing.T, dir, name string, kind pki.KeyType) *x509.Certificate {
	t.Helper()
	key, err := pki.GenerateKey(kind)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert := certtest.Sign(t, template, template, key.Public(), key)
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pki.EncodeCertificates([]*x509.Certificate{cert})
	for file, content := range map[string][]byte{"ca-cert.pem": certPEM, "ca-key.pem": keyPEM, "root-cert.pem": certPEM} {
		writeWhole(t, filepath.Join(dir, file), content)
	}
	return cert
}

// writeWhole replaces a file at once: a reader sees the old or the new content.
func writeWhole(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
