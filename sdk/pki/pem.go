package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// Limits of one PEM input. An operating system's bundle has about 150 certificates in 220
// kB.
const (
	MaxPEM          = 1 << 20 // in bytes
	MaxCertificates = 1000
)

// ParseCertificates parses PEM blocks "CERTIFICATE" in order, each as [ParseCertificate]
// does: at least one, at most 1,000 and 1 MiB. Any other block is an error; text between
// blocks is not (RFC 7468, section 2).
func ParseCertificates(pemBytes []byte) ([]*x509.Certificate, error) {
	blocks, err := decode(pemBytes, "CERTIFICATE", MaxCertificates)
	if err != nil {
		return nil, err
	}
	certs := make([]*x509.Certificate, len(blocks))
	for i, der := range blocks {
		if certs[i], err = ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("certificate %d of %d %w", i+1, len(blocks), err)
		}
	}
	return certs, nil
}

// EncodeCertificates returns the certificates as PEM, in the given order.
func EncodeCertificates(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		// Writing to a bytes.Buffer does not fail.
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return out.Bytes()
}

// Fingerprint returns the SHA-256 of the certificate's DER in lower-case hex.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// decode returns the contents of 1 to most PEM blocks of one type.
func decode(text []byte, blockType string, most int) ([][]byte, error) {
	if len(text) > MaxPEM {
		return nil, fmt.Errorf("it has %d bytes of PEM, %d are allowed", len(text), MaxPEM)
	}
	var blocks [][]byte
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != blockType {
			return nil, fmt.Errorf("it holds a PEM block %.256q where only %q is allowed", block.Type, blockType)
		}
		if len(blocks) == most {
			return nil, fmt.Errorf("it holds more than %d PEM blocks %q", most, blockType)
		}
		blocks = append(blocks, block.Bytes)
		text = rest
	}
	// pem.Decode skips what it cannot parse; no certificate may vanish silently.
	if bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, errors.New("it holds a malformed PEM block")
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("it holds no PEM block %q", blockType)
	}
	return blocks, nil
}
