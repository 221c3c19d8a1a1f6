package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
)

// Object identifiers from RFC 2986 (section 4), RFC 2985 (5.4.2), RFC 5758 (3.2), RFC 4055
// (5) and RFC 8410 (3). For those of ML-DSA, see mldsa.go.
var (
	oidExtensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
	oidECDSAWithSHA256  = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
	oidECDSAWithSHA384  = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}
	oidSHA256WithRSA    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}
	oidEd25519          = asn1.ObjectIdentifier{1, 3, 101, 112}
)

// request is a CertificationRequest (RFC 2986, section 4.2).
type request struct {
	Info      asn1.RawValue
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

// requestInfo is the signed part of a request (section 4.1).
type requestInfo struct {
	Version    int
	Subject    asn1.RawValue
	PublicKey  asn1.RawValue
	Attributes []requestAttribute `asn1:"tag:0"`
}

type requestAttribute struct {
	Type  asn1.ObjectIdentifier
	Value [][]pkix.Extension `asn1:"set"`
}

// createRequest returns the DER of a CSR with an empty subject and the extension names.
// x509.CreateCertificateRequest also verifies its own signature, in case the signer is a
// faulty device; that takes a fifth of a rotation's CPU time. The authority verifies the
// signature anyway.
func createRequest(key crypto.Signer, names pkix.Extension) ([]byte, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	algorithm, hash, err := signatureBy(key.Public())
	if err != nil {
		return nil, err
	}
	info, err := asn1.Marshal(requestInfo{
		Subject: asn1.RawValue{FullBytes: []byte{0x30, 0}}, PublicKey: asn1.RawValue{FullBytes: public},
		Attributes: []requestAttribute{{oidExtensionRequest, [][]pkix.Extension{{names}}}},
	})
	if err != nil {
		return nil, err
	}
	signature, err := crypto.SignMessage(key, rand.Reader, info, hash)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(request{asn1.RawValue{FullBytes: info}, algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
}

// signatureBy returns the signature algorithm and hash for a public key.
func signatureBy(public crypto.PublicKey) (pkix.AlgorithmIdentifier, crypto.Hash, error) {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P384() {
			return pkix.AlgorithmIdentifier{Algorithm: oidECDSAWithSHA384}, crypto.SHA384, nil
		}
		if key.Curve == elliptic.P256() {
			return pkix.AlgorithmIdentifier{Algorithm: oidECDSAWithSHA256}, crypto.SHA256, nil
		}
	case *rsa.PublicKey:
		return pkix.AlgorithmIdentifier{Algorithm: oidSHA256WithRSA, Parameters: asn1.NullRawValue}, crypto.SHA256, nil
	case ed25519.PublicKey:
		return pkix.AlgorithmIdentifier{Algorithm: oidEd25519}, 0, nil
	}
	if oid := mldsaOIDs[KeyTypeOf(public)]; oid != nil {
		return pkix.AlgorithmIdentifier{Algorithm: oid}, 0, nil
	}
	return pkix.AlgorithmIdentifier{}, 0, fmt.Errorf("unsupported key type %T", public)
}
