package pki

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
)

const (
	// maxCertificate bounds one certificate in DER. OpenSSL and BoringSSL read no longer
	// chain from a peer.
	maxCertificate = 100 << 10
	// maxRSA bounds RSA keys in bits, as crypto/tls does. The time to check one signature
	// grows with the square of the size: a root of 3 Mbit costs 10 seconds.
	maxRSA = 8192
)

// ParseCertificate parses one certificate (DER) of at most 100 KiB. All foreign
// certificates go through it: it refuses a key that makes checking a signature expensive,
// RSA of more than 8,192 bits or with a public exponent of more than 32. The error explains why
// Go refuses what other programs may take, and quotes names only.
func ParseCertificate(der []byte) (*x509.Certificate, error) {
	if len(der) > maxCertificate {
		return nil, fmt.Errorf("has %d bytes, %d are allowed", len(der), maxCertificate)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, refusal(der, err)
	}
	if err := checkKeySize(cert.PublicKey); err != nil {
		return nil, err
	}
	return cert, nil
}

// checkKeySize refuses a key that makes checking a signature expensive.
func checkKeySize(key crypto.PublicKey) error {
	public, ok := key.(*rsa.PublicKey)
	switch {
	case !ok:
		return nil
	case public.N.BitLen() > maxRSA:
		return fmt.Errorf("has an RSA key of %d bits, %d are allowed", public.N.BitLen(), maxRSA)
	case int64(public.E) > math.MaxUint32:
		return errors.New("has an RSA key with a public exponent of more than 32 bits")
	}
	return nil
}
