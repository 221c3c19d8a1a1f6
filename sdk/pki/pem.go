package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
)

// Limits of one PEM input. An operating system's bundle has about 150 certificates in 220
// kB.
const (
	MaxPEM          = 1 << 20 // in bytes
	MaxCertificates = 1000
)

const (
	certificateBlock = "CERTIFICATE"
	requestBlock     = "CERTIFICATE REQUEST"
	ecParameters     = "EC PARAMETERS"
)

// ParseCertificates parses PEM blocks "CERTIFICATE" in order, each as [ParseCertificate]
// does: at least one, at most 1,000 and 1 MiB. Any other block is an error, and so is one that
// [Blocks] cannot read; text between blocks is not (RFC 7468, section 2).
func ParseCertificates(pemBytes []byte) ([]*x509.Certificate, error) {
	return all(usable(pemBytes, func(string) bool { return false }))
}

// ParseCertificatesBesideKey parses the certificates of a file that holds their private key, too,
// as HAProxy and Postfix read it. Otherwise it does what [ParseCertificates] does.
func ParseCertificatesBesideKey(pemBytes []byte) ([]*x509.Certificate, error) {
	return all(usable(pemBytes, func(blockType string) bool {
		return strings.HasSuffix(blockType, "PRIVATE KEY") || blockType == ecParameters
	}))
}

func all(certs []*x509.Certificate, unusable []error, err error) ([]*x509.Certificate, error) {
	if len(unusable) > 0 {
		return nil, unusable[0]
	}
	return certs, err
}

// UsableCertificates parses certificates as [ParseCertificates] does, and leaves out the blocks
// that are of no use: unusable lists which ones, and why. A text without a usable certificate
// is an error.
func UsableCertificates(pemBytes []byte) (certs []*x509.Certificate, unusable []error, err error) {
	return usable(pemBytes, func(string) bool { return false })
}

// usable skips blocks of the ignored types.
func usable(pemBytes []byte, ignored func(blockType string) bool) (certs []*x509.Certificate, unusable []error, err error) {
	if len(pemBytes) > MaxPEM {
		return nil, nil, fmt.Errorf("it has %d bytes of PEM, %d are allowed", len(pemBytes), MaxPEM)
	}
	n := 0
	for block, fault := range Blocks(pemBytes) {
		if n++; n > MaxCertificates {
			return nil, nil, fmt.Errorf("it holds more than %d PEM blocks", MaxCertificates)
		}
		if fault == nil && ignored(block.Type) {
			continue
		}
		cert, fault := certificateIn(block, n, fault)
		if fault != nil {
			unusable = append(unusable, fault)
			continue
		}
		certs = append(certs, cert)
	}
	switch {
	case len(certs) > 0:
	case len(unusable) > 0:
		err = fmt.Errorf("it holds no certificate that can be used: %w", unusable[0])
	default:
		err = fmt.Errorf("it holds no PEM block %q", certificateBlock)
	}
	return certs, unusable, err
}

func certificateIn(block *pem.Block, n int, fault error) (*x509.Certificate, error) {
	if fault == nil {
		fault = wantType(block, n, certificateBlock)
	}
	if fault != nil {
		return nil, fault
	}
	cert, err := ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("PEM block %d %w", n, err)
	}
	return cert, nil
}

func wantType(block *pem.Block, n int, want string) error {
	switch {
	case block.Type == want:
		return nil
	case block.Type == "TRUSTED CERTIFICATE" && want == certificateBlock:
		return fmt.Errorf("PEM block %d is a %q, whose trust settings are not supported: convert it with openssl x509 -in FILE -out FILE", n, block.Type)
	}
	return fmt.Errorf("PEM block %d is %.64q where only %q is allowed", n, block.Type, want)
}

// EncodeCertificates returns the certificates as PEM, in the given order.
func EncodeCertificates(certs []*x509.Certificate) []byte {
	size := 0
	for _, cert := range certs {
		size += encodedSize(certificateBlock, cert.Raw)
	}
	out := make([]byte, 0, size)
	for _, cert := range certs {
		out = appendBlock(out, certificateBlock, cert.Raw)
	}
	return out
}

// EncodeBlock returns one block as [pem.EncodeToMemory] does, which takes four times the memory.
func EncodeBlock(blockType string, content []byte) []byte {
	return appendBlock(make([]byte, 0, encodedSize(blockType, content)), blockType, content)
}

// The bytes that a line of PEM holds, and its own (RFC 7468, section 2).
const inLine, ofLine = 48, 64 + 1

func appendBlock(out []byte, blockType string, content []byte) []byte {
	out = append(append(append(out, "-----BEGIN "...), blockType...), "-----\n"...)
	for line := range slices.Chunk(content, inLine) {
		out = append(base64.StdEncoding.AppendEncode(out, line), '\n')
	}
	return append(append(append(out, "-----END "...), blockType...), "-----\n"...)
}

// encodedSize returns how many bytes a block takes at most.
func encodedSize(blockType string, content []byte) int {
	return len("-----BEGIN -----\n-----END -----\n") + 2*len(blockType) + (len(content)+inLine-1)/inLine*ofLine
}

// Fingerprint returns the SHA-256 of the certificate's DER in lower-case hex.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// onlyBlock returns the content of the only PEM block of a text.
func onlyBlock(text []byte, blockType string) (der []byte, err error) {
	if len(text) > MaxPEM {
		return nil, fmt.Errorf("it has %d bytes of PEM, %d are allowed", len(text), MaxPEM)
	}
	n := 0
	for block, err := range Blocks(text) {
		if n++; n > 1 {
			return nil, fmt.Errorf("it holds more than one PEM block, want one %q", blockType)
		}
		if err != nil {
			return nil, err
		}
		if err := wantType(block, n, blockType); err != nil {
			return nil, err
		}
		der = block.Bytes
	}
	if n == 0 {
		return nil, fmt.Errorf("it holds no PEM block %q", blockType)
	}
	return der, nil
}
