package fileca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	rootLifetime = 10 * 365 * 24 * time.Hour
	lockTimeout  = 10 * time.Second
)

// makeSelfSigned creates a root in dir unless there is a CA. Of several processes at once,
// one creates it and the others find it.
func makeSelfSigned(ctx context.Context, dir string, keyType pki.KeyType, now time.Time, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	// Every access is through this handle, so that it is to the folder whose owner was
	// checked.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	defer func() { _ = root.Close() }()
	handle, err := root.Open(".")
	if err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	defer func() { _ = handle.Close() }() // releases the lock
	if err := checkOwner(handle, dir, log); err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := lock(ctx, handle); err != nil {
		return ca.Errorf(ca.Unavailable, "self_signed: %s is locked by another process: %w", dir, err)
	}
	if err := (maker{root, handle, dir, keyType}).make(now); err != nil {
		return ca.Errorf(ca.Invalid, "self_signed: %w", err)
	}
	return nil
}

// maker creates the files of a self-signed CA in a locked folder.
type maker struct {
	root   *os.Root
	handle *os.File // the folder, open
	dir    string
	key    pki.KeyType
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

// has reports whether the name exists, even as a dangling link.
func (m maker) has(name string) bool {
	_, err := m.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// keep returns the content of the file, and creates it first if necessary.
func (m maker) keep(name string, mode fs.FileMode, content func() ([]byte, error)) ([]byte, error) {
	if m.has(name) {
		return setting.File(filepath.Join(m.dir, name)).Read()
	}
	made, err := content()
	if err != nil {
		return nil, err
	}
	return made, m.write(name, mode, made)
}

// write creates the file atomically and syncs it to disk.
func (m maker) write(name string, mode fs.FileMode, content []byte) error {
	unfinished := "." + name + ".new"
	// Left by an interrupted start: under the lock, nobody else writes it.
	if err := m.root.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := m.root.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = m.root.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(err, m.root.Remove(unfinished))
	}
	return syncFolder(m.handle)
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
