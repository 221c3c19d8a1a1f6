package fileca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// authority is a CA that can sign: a certificate with its key and the way up to a
// root, all checked. It is immutable.
type authority struct {
	cert  *x509.Certificate
	key   crypto.Signer
	above []*x509.Certificate // what follows a leaf in its chain: cert and up, without the root
	roots *pki.Bundle

	// When the whole path is valid: no leaf may begin before or end after.
	notBefore, notAfter time.Time
}

// newAuthority checks the files of a folder. An error names the file.
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
		return nil, in(keyFile, fmt.Errorf("it is not the key of %s", certFile))
	}
	if a.roots, err = pki.ParseBundle(f.root); err != nil {
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
		return nil, fmt.Errorf("it holds %d certificates; it must be the signing CA's alone, the others belong in %s", len(certs), chainFile)
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return nil, fmt.Errorf("it is not a CA certificate (%s)", name(cert))
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("its key usage does not allow it to sign certificates (%s)", name(cert))
	}
	return cert, timeFault(cert, now)
}

func timeFault(cert *x509.Certificate, now time.Time) error {
	switch {
	case !now.Before(cert.NotAfter):
		return fmt.Errorf("the certificate expired at %s (%s)", stamp(cert.NotAfter), name(cert))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s (%s)", stamp(cert.NotBefore), name(cert))
	}
	return nil
}

// parseChain reads what may stand between the CA and its root; Istio's tools put
// the CA itself and the root there, too.
func parseChain(pemBytes []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(pemBytes)) == 0 {
		return nil, nil
	}
	return pki.ParseCertificates(pemBytes)
}

// findPath returns the way from the CA up to a root, both included.
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
		return nil, fmt.Errorf("it does not lead to a root of %s through %s (%s): %.256q", rootFile, chainFile, name(cert), err)
	}
	var tooDeep error
	for _, path := range paths {
		if tooDeep = depthFault(path); tooDeep == nil {
			return path, nil
		}
	}
	return nil, tooDeep
}

// depthFault counts anew how many CAs are below each: Verify took the first for a
// leaf, and it will have leaves below it.
func depthFault(path []*x509.Certificate) error {
	for below, cert := range path {
		if (cert.MaxPathLen > 0 || cert.MaxPathLenZero) && below > cert.MaxPathLen {
			return fmt.Errorf("a CA above it (%s) allows %d CAs below itself, here are %d", name(cert), cert.MaxPathLen, below)
		}
	}
	return nil
}

// follow takes over what the path says about chain and times.
func (a *authority) follow(path []*x509.Certificate) {
	a.above = path[:len(path)-1]
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
