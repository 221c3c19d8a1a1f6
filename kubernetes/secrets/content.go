package secrets

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Limits on a secret's content beyond those of package pki.
const (
	maxChain  = 20
	maxKey    = 64 << 10
	maxStaple = 64 << 10
	maxCRL    = 1 << 20
)

// content is what Envoy gets from an object: a key pair or a CA.
type content struct {
	chain, key, staple []byte // the staple in DER, the rest in PEM
	ca, crl            []byte
	lifetime
}

// readPair rejects what Envoy would reject and obvious mistakes. It rebuilds the
// content, so that nothing unread remains. Errors quote no key.
func readPair(chainPEM, keyPEM, staple []byte) (content, error) {
	chain, err := pki.ParseCertificates(chainPEM)
	switch {
	case err != nil:
		return content{}, fmt.Errorf("certificate: %w", err)
	case len(chain) > maxChain:
		return content{}, fmt.Errorf("the chain has %d certificates, %d are allowed", len(chain), maxChain)
	case len(keyPEM) > maxKey:
		return content{}, fmt.Errorf("the key has %d bytes, %d are allowed", len(keyPEM), maxKey)
	}
	key, err := pki.ParseKey(keyPEM)
	if err != nil {
		return content{}, fmt.Errorf("key: %w", err)
	}
	if !pki.SameKey(key.Public(), chain[0].PublicKey) {
		return content{}, errors.New("the key does not match the first certificate")
	}
	if err := errors.Join(checkLoadable(key.Public()), checkStaple(staple)); err != nil {
		return content{}, err
	}
	encoded, err := pki.EncodeKey(key)
	return content{chain: pki.EncodeCertificates(chain), key: encoded, staple: staple, lifetime: lifetimeOf(chain)}, err
}

// minRSA is the least size of an RSA key that Envoy loads, in bits.
const minRSA = 2048

// checkLoadable refuses a key that no Envoy can load: it refuses all secrets in the response with
// it. What is missing here, package xds finds out once a client has refused it.
func checkLoadable(key crypto.PublicKey) error {
	if key, ok := key.(*rsa.PublicKey); ok && key.N.BitLen() < minRSA {
		return fmt.Errorf("the RSA key has %d bits, Envoy requires %d", key.N.BitLen(), minRSA)
	}
	return nil
}

// ocspResponse is the outer part of a response; the client verifies the signed part.
type ocspResponse struct {
	Status  asn1.Enumerated
	Content struct {
		Type     asn1.ObjectIdentifier
		Response []byte
	} `asn1:"optional,explicit,tag:0"`
}

// checkStaple requires a successful OCSP response (RFC 6960, section 4.2.1): with any
// other, Envoy rejects the whole secret.
func checkStaple(der []byte) error {
	if len(der) == 0 {
		return nil
	}
	if len(der) > maxStaple {
		return fmt.Errorf("the OCSP staple has %d bytes, %d are allowed", len(der), maxStaple)
	}
	var response ocspResponse
	rest, err := asn1.Unmarshal(der, &response)
	if err != nil || len(rest) > 0 || response.Status != 0 || len(response.Content.Response) == 0 {
		return errors.New("the OCSP staple is not a successful OCSP response in DER")
	}
	return nil
}

func readAuthority(caPEM, crlPEM []byte) (content, error) {
	certs, err := pki.ParseCertificates(caPEM)
	if err != nil {
		return content{}, fmt.Errorf("CA: %w", err)
	}
	crl, err := readCRL(crlPEM)
	if err != nil {
		return content{}, err
	}
	return content{ca: pki.EncodeCertificates(certs), crl: crl, lifetime: lifetimeOf(certs)}, nil
}

// readCRL parses PEM blocks "X509 CRL" (RFC 7468, section 6) and returns them
// re-encoded.
func readCRL(text []byte) ([]byte, error) {
	if len(text) > maxCRL {
		return nil, fmt.Errorf("the CRL has %d bytes, %d are allowed", len(text), maxCRL)
	}
	var out []byte
	for block, err := range pki.Blocks(text) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("the CRL: %w", err)
		case block.Type != "X509 CRL":
			return nil, errors.New(`the CRL contains something other than PEM blocks "X509 CRL"`)
		}
		if _, err := x509.ParseRevocationList(block.Bytes); err != nil {
			return nil, errors.New("the CRL is malformed")
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if out == nil && len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New(`the CRL contains no PEM block "X509 CRL"`)
	}
	return out, nil
}
