package filesecret

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// maxRoots is the maximum number of certificates in a bundle.
const maxRoots = 1000

// readBundle reads trust anchors from a file. It skips invalid ones and describes them in
// skipped; if none is left, it returns an error.
func readBundle(spec Spec, read reader, now time.Time) (item *secret.Item, skipped []string, err error) {
	text, err := read(spec.Roots)
	if err != nil {
		return nil, nil, err
	}
	roots, skipped, err := parseRoots(text, now)
	if err != nil {
		return nil, skipped, fmt.Errorf("%s: %w", spec.Roots, err)
	}
	return secret.NewTrustBundle(spec.Name, authority, roots), skipped, nil
}

var begin = []byte("-----BEGIN")

func parseRoots(text []byte, now time.Time) (roots *pki.Bundle, skipped []string, err error) {
	var good []*x509.Certificate
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			rest = nil // pem.Decode returns the whole input when it finds no block in it
		}
		// pem.Decode skips what it cannot parse; no root may vanish silently.
		if lost := bytes.Count(text[:len(text)-len(rest)], begin); block == nil && lost > 0 || lost > 1 {
			skipped = append(skipped, fmt.Sprintf("a malformed PEM block before the end of block %d", n))
		}
		if block == nil {
			break
		}
		if n > maxRoots {
			return nil, skipped, fmt.Errorf("it holds more than %d PEM blocks", maxRoots)
		}
		text = rest
		cert, fault := rootOf(block, now)
		if fault != "" {
			skipped = append(skipped, fmt.Sprintf("PEM block %d: %s", n, fault))
			continue
		}
		good = append(good, cert)
	}
	if len(good) == 0 {
		return nil, skipped, errors.New("it holds no CA certificate that is valid now")
	}
	return pki.NewBundle(good...), skipped, nil
}

// rootOf returns the certificate of a block, or why it cannot verify a peer. It accepts
// one that is not self-signed: the operator may trust an intermediate.
func rootOf(block *pem.Block, now time.Time) (cert *x509.Certificate, fault string) {
	if block.Type != "CERTIFICATE" {
		return nil, fmt.Sprintf("it is %.64q, not a certificate", block.Type)
	}
	cert, err := pki.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return nil, "it " + err.Error()
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return nil, fmt.Sprintf("%.128q is no CA certificate", cert.Subject.String())
	case now.After(cert.NotAfter):
		return nil, fmt.Sprintf("%.128q ended at %s", cert.Subject.String(), clock.Stamp(cert.NotAfter))
	}
	return cert, ""
}
