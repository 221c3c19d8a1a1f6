//go:build cgo

package pkcs11

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/miekg/pkcs11"
)

// hash holds a hash's names in PKCS #11 and PKCS #1: the prefix is the DER of a
// DigestInfo before the digest (RFC 8017, section 9.2, note 1).
type hash struct {
	mechanism, mgf uint
	prefix         []byte
}

var hashes = map[crypto.Hash]hash{
	crypto.SHA256: {pkcs11.CKM_SHA256, pkcs11.CKG_MGF1_SHA256, []byte{0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20}},
	crypto.SHA384: {pkcs11.CKM_SHA384, pkcs11.CKG_MGF1_SHA384, []byte{0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0x04, 0x30}},
	crypto.SHA512: {pkcs11.CKM_SHA512, pkcs11.CKG_MGF1_SHA512, []byte{0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00, 0x04, 0x40}},
}

// Sign signs a SHA-256, SHA-384 or SHA-512 digest, as TLS and CSRs need: ECDSA in ASN.1
// DER, RSA as PKCS #1 v1.5 or PSS. It uses the token's randomness.
func (k *Key) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	h, known := hashes[opts.HashFunc()]
	if !known || len(digest) != opts.HashFunc().Size() {
		return nil, fmt.Errorf("pkcs11: %d bytes of %v cannot be signed; use a digest of SHA-256, SHA-384 or SHA-512", len(digest), opts.HashFunc())
	}
	if public, ok := k.public.(*ecdsa.PublicKey); ok {
		size := (public.Curve.Params().BitSize + 7) / 8
		raw, err := k.sign(pkcs11.NewMechanism(pkcs11.CKM_ECDSA, nil), digest[:min(size, len(digest))])
		if err != nil {
			return nil, err
		}
		return asSequence(raw)
	}
	if pss, ok := opts.(*rsa.PSSOptions); ok {
		return k.sign(pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS_PSS, pkcs11.NewPSSParams(h.mechanism, h.mgf, saltOf(pss))), digest)
	}
	return k.sign(pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS, nil), append(append([]byte(nil), h.prefix...), digest...))
}

// saltOf returns the salt length in bytes: the hash size unless given as a number.
func saltOf(pss *rsa.PSSOptions) uint {
	if pss.SaltLength > 0 {
		return uint(pss.SaltLength)
	}
	return uint(pss.Hash.Size())
}

func (k *Key) sign(mechanism *pkcs11.Mechanism, data []byte) (signature []byte, err error) {
	t := k.token
	err = t.with(context.Background(), func(session pkcs11.SessionHandle) error {
		object, err := k.object(session)
		if err != nil {
			return err
		}
		if err := t.module.SignInit(session, []*pkcs11.Mechanism{mechanism}, object); err != nil {
			return t.away("begin a signature", err)
		}
		if signature, err = t.module.Sign(session, data); err != nil {
			return t.away("sign", err)
		}
		return nil
	})
	return signature, err
}

// asSequence converts a token's raw ECDSA signature to ASN.1 DER (RFC 3279, section
// 2.2.3).
func asSequence(raw []byte) ([]byte, error) {
	if len(raw) == 0 || len(raw)%2 != 0 {
		return nil, errors.New("pkcs11: the token's signature is not two numbers of one size")
	}
	half := len(raw) / 2
	return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
}
