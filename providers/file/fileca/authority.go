package fileca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// authority is a CA that can sign: a certificate, its key and its chain to a root, all
// verified. It is immutable.
type authority struct {
	cert  *x509.Certificate
	key   crypto.Signer
	above []*x509.Certificate // what follows a leaf in its chain: cert first, without the root
	roots *pki.Bundle

	abovePEM, rootsPEM []byte // each reply has them

	leftOut []error // roots of the file that cannot be used

	// The validity of the whole path, and so the bounds of a leaf's.
	notBefore, notAfter time.Time
}

// newAuthority verifies the files of a folder. An error names the file.
func newAuthority(dir string, f *files, now time.Time) (*authority, error) {
	a := &authority{}
	in := func(name string, err error) error { return fmt.Errorf("%s: %w", filepath.Join(dir, name), err) }
	var err error
	if a.cert, err = parseCA(f.cert, now); err != nil {
		return nil, in(certFile, err)
	}
	if a.key, err = pki.ParseKey(f.key); err != nil {
		return nil, in(keyFile, err)
	}
	if !pki.SameKey(a.key.Public(), a.cert.PublicKey) {
		return nil, in(keyFile, fmt.Errorf("not the key of %s", certFile))
	}
	if a.roots, a.leftOut, err = parseRoots(f.root); err != nil {
		return nil, in(rootFile, err)
	}
	between, err := parseChain(f.chain)
	if err != nil {
		return nil, in(chainFile, err)
	}
	path, err := findPath(a.cert, between, a.roots, now)
	if err != nil {
		return nil, in(certFile, err)
	}
	a.follow(path)
	return a, nil
}

// parseCA reads the one certificate that signs leaves.
func parseCA(pemBytes []byte, now time.Time) (*x509.Certificate, error) {
	certs, err := pki.ParseCertificates(pemBytes)
	if err != nil {
		return nil, err
	}
	cert := certs[0]
	switch {
	case len(certs) > 1:
		return nil, fmt.Errorf("has %d certificates, want the signing CA alone: move the others to %s", len(certs), chainFile)
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return nil, fmt.Errorf("not a CA certificate (%s)", name(cert))
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("key usage does not allow signing certificates (%s)", name(cert))
	}
	return cert, timeFault(cert, now)
}

// A timeError ends by itself: a clock is set late at boot, and an expired CA is replaced.
type timeError struct{ text string }

func (e timeError) Error() string { return e.text }

func timeFault(cert *x509.Certificate, now time.Time) error {
	switch {
	case !now.Before(cert.NotAfter):
		return timeError{fmt.Sprintf("expired at %s (%s): renew it, or correct the clock of this machine (%s)", stamp(cert.NotAfter), name(cert), stamp(now))}
	case now.Before(cert.NotBefore):
		return timeError{fmt.Sprintf("not valid before %s (%s): correct the clock of this machine (%s)", stamp(cert.NotBefore), name(cert), stamp(now))}
	}
	return nil
}

// parseRoots leaves out roots that cannot be used, but takes no file that is damaged: it may be half
// written.
func parseRoots(pemBytes []byte) (roots *pki.Bundle, unusable []error, err error) {
	roots, unusable, err = pki.UsableBundle(pemBytes)
	for _, reason := range unusable {
		if errors.Is(reason, pki.ErrMalformed) {
			return nil, nil, reason
		}
	}
	return roots, unusable, err
}

// parseChain reads the certificates between the CA and its root. Istio's tools add the CA
// itself and the root.
func parseChain(pemBytes []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(pemBytes)) == 0 {
		return nil, nil
	}
	return pki.ParseCertificates(pemBytes)
}

// findPath returns the path from the CA to a root, both included.
func findPath(cert *x509.Certificate, between []*x509.Certificate, roots *pki.Bundle, now time.Time) ([]*x509.Certificate, error) {
	intermediates := x509.NewCertPool()
	for _, c := range between {
		intermediates.AddCert(c)
	}
	paths, err := cert.Verify(x509.VerifyOptions{
		Roots: roots.Pool(), Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("does not chain to a root of %s through %s (%s): %w", rootFile, chainFile, name(cert), pki.Explain(err, cert, slices.Concat(between, roots.Certificates())...))
	}
	var tooDeep error
	for _, path := range paths {
		if tooDeep = depthFault(path); tooDeep == nil {
			return path, nil
		}
	}
	return nil, tooDeep
}

// depthFault counts the CAs below each CA: Verify took the first for a leaf, but it will
// sign leaves.
func depthFault(path []*x509.Certificate) error {
	for below, cert := range path {
		if (cert.MaxPathLen > 0 || cert.MaxPathLenZero) && below > cert.MaxPathLen {
			return fmt.Errorf("a CA above (%s) allows %d CAs below it, found %d", name(cert), cert.MaxPathLen, below)
		}
	}
	return nil
}

// follow sets the chain and the validity from the path.
func (a *authority) follow(path []*x509.Certificate) {
	a.above = path[:len(path)-1]
	a.abovePEM, a.rootsPEM = pki.EncodeCertificates(a.above), a.roots.PEM()
	a.notBefore, a.notAfter = a.cert.NotBefore, a.cert.NotAfter
	for _, cert := range path {
		if cert.NotBefore.After(a.notBefore) {
			a.notBefore = cert.NotBefore
		}
		if cert.NotAfter.Before(a.notAfter) {
			a.notAfter = cert.NotAfter
		}
	}
}

func name(cert *x509.Certificate) string { return fmt.Sprintf("%.256q", cert.Subject.String()) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
