package fileca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	rootLifetime = 10 * 365 * 24 * time.Hour
)

// makeSelfSigned creates a root in dir unless there is a CA. Of several processes at once,
// one creates it and the others find it.
func makeSelfSigned(ctx context.Context, dir string, keyType pki.KeyType, now time.Time, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	f, err := lockFolder(ctx, dir, log)
	if err != nil {
		return folderError("self_signed", dir, err)
	}
	defer f.close()
	if err := (maker{f, keyType}).make(now); err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	return nil
}

// maker creates the files of a self-signed CA.
type maker struct {
	*folder
	key pki.KeyType
}

// make continues where an earlier start was interrupted: the key comes first and ca-cert.pem
// last, and no existing file is replaced.
func (m maker) make(now time.Time) error {
	switch {
	case m.has(certFile):
		return nil
	case m.has(rootFile) && !m.has(keyFile):
		return fmt.Errorf("%s has %s but neither %s nor %s: add the CA, or set dir to an empty folder", m.dir, rootFile, certFile, keyFile)
	}
	keyPEM, err := m.keep(keyFile, 0o600, func() ([]byte, error) { return newKey(m.key) })
	if err != nil {
		return err
	}
	key, err := pki.ParseKey(keyPEM)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(m.dir, keyFile), err)
	}
	rootPEM, err := m.keep(rootFile, 0o644, func() ([]byte, error) { return newRoot(key, now) })
	if err != nil {
		return err
	}
	_, err = m.keep(certFile, 0o644, func() ([]byte, error) { return rootPEM, nil })
	return err
}

func newKey(t pki.KeyType) ([]byte, error) {
	key, err := pki.GenerateKey(t)
	if err != nil {
		return nil, err
	}
	return pki.EncodeKey(key)
}

func newRoot(key crypto.Signer, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"Countersign"}, CommonName: "Countersign self-signed root"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(rootLifetime),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the root: %w", err)
	}
	cert, err := pki.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return pki.EncodeCertificates([]*x509.Certificate{cert}), nil
}
