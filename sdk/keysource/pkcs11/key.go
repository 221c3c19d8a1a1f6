//go:build cgo

package pkcs11

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"runtime"

	"github.com/miekg/pkcs11"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// kind describes how a token generates one type of key.
type kind struct {
	mechanism uint
	public    []*pkcs11.Attribute
	curve     elliptic.Curve // nil: RSA
}

var exponent = big.NewInt(65537).Bytes()

func ecKind(curve elliptic.Curve, oid asn1.ObjectIdentifier) kind {
	params, _ := asn1.Marshal(oid) // both OIDs are fixed, so this cannot fail
	return kind{pkcs11.CKM_EC_KEY_PAIR_GEN, []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, params)}, curve}
}

func rsaKind(bits int) kind {
	return kind{pkcs11.CKM_RSA_PKCS_KEY_PAIR_GEN, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_MODULUS_BITS, bits), pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, exponent),
	}, nil}
}

// kindOf returns the kind for a key type (curves: RFC 5480, section 2.1.1.1).
func kindOf(t pki.KeyType) (kind, error) {
	switch t {
	case "", pki.ECDSAP256:
		return ecKind(elliptic.P256(), asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}), nil
	case pki.ECDSAP384:
		return ecKind(elliptic.P384(), asn1.ObjectIdentifier{1, 3, 132, 0, 34}), nil
	case pki.RSA2048:
		return rsaKind(2048), nil
	case pki.RSA3072:
		return rsaKind(3072), nil
	case pki.RSA4096:
		return rsaKind(4096), nil
	}
	return kind{}, ca.Errorf(ca.Invalid, "pkcs11: keys of type %.64q are not made in a token; use ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072 or rsa-4096", string(t))
}

// idSize is the size of the random CKA_ID, in bytes.
const idSize = 16

// NewKey generates a non-extractable key.
func (t *Token) NewKey(ctx context.Context, _ string, keyType pki.KeyType) (crypto.Signer, error) {
	k, err := kindOf(keyType)
	if err != nil {
		return nil, err
	}
	id := make([]byte, idSize)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	var public crypto.PublicKey
	err = t.with(ctx, func(session pkcs11.SessionHandle) error {
		made, _, err := t.module.GenerateKeyPair(session, []*pkcs11.Mechanism{pkcs11.NewMechanism(k.mechanism, nil)}, t.publicTemplate(k, id), t.privateTemplate(id))
		if err != nil {
			return t.away("make a key", err)
		}
		public, err = t.readPublic(session, made, k.curve)
		return err
	})
	if err != nil {
		return nil, err
	}
	key := &Key{token: t, id: id, public: public}
	// A holder of its certificate may still sign: the key goes once unreferenced.
	runtime.AddCleanup(key, func(id []byte) { go t.destroy(id) }, id)
	return key, nil
}

func (t *Token) publicTemplate(k kind, id []byte) []*pkcs11.Attribute {
	return append([]*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_VERIFY, true),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, t.config.Label), pkcs11.NewAttribute(pkcs11.CKA_ID, id),
	}, k.public...)
}

func (t *Token) privateTemplate(id []byte) []*pkcs11.Attribute {
	return []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false), pkcs11.NewAttribute(pkcs11.CKA_SIGN, true),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, t.config.Label), pkcs11.NewAttribute(pkcs11.CKA_ID, id),
	}
}

func (t *Token) readPublic(session pkcs11.SessionHandle, object pkcs11.ObjectHandle, curve elliptic.Curve) (crypto.PublicKey, error) {
	wanted := []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_MODULUS, nil), pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, nil)}
	if curve != nil {
		wanted = []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_POINT, nil)}
	}
	got, err := t.module.GetAttributeValue(session, object, wanted)
	if err != nil {
		return nil, t.away("read a public key", err)
	}
	if curve == nil {
		return &rsa.PublicKey{N: new(big.Int).SetBytes(got[0].Value), E: int(new(big.Int).SetBytes(got[1].Value).Int64())}, nil
	}
	point := got[0].Value
	var inner []byte
	if rest, err := asn1.Unmarshal(point, &inner); err == nil && len(rest) == 0 {
		point = inner // an OCTET STRING, by the standard; some tokens omit it
	}
	return ecdsa.ParseUncompressedPublicKey(curve, point)
}

// Key is a private key in a token. It is safe for concurrent use.
type Key struct {
	token  *Token
	id     []byte
	public crypto.PublicKey
}

var _ crypto.Signer = (*Key)(nil)

// Public returns the public key.
func (k *Key) Public() crypto.PublicKey { return k.public }

// String returns the key's id without its token.
func (k *Key) String() string { return fmt.Sprintf("PKCS #11 key %x", k.id) }

// object returns the session's handle of the private key.
func (k *Key) object(session pkcs11.SessionHandle) (pkcs11.ObjectHandle, error) {
	found, err := k.token.objects(session, pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_PRIVATE_KEY), pkcs11.NewAttribute(pkcs11.CKA_ID, k.id))
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0:
		return 0, fmt.Errorf("pkcs11: token %q: %w", k.token.config.Token, errNoObject)
	}
	return found[0], nil
}

// maxObjects limits the results of one search.
const maxObjects = 1000

func (t *Token) objects(session pkcs11.SessionHandle, template ...*pkcs11.Attribute) ([]pkcs11.ObjectHandle, error) {
	if err := t.module.FindObjectsInit(session, template); err != nil {
		return nil, t.away("look for a key", err)
	}
	found, _, err := t.module.FindObjects(session, maxObjects)
	if err = errors.Join(err, t.module.FindObjectsFinal(session)); err != nil {
		return nil, t.away("look for a key", err)
	}
	return found, nil
}

// destroy removes one key; if the token is away, the next Open does.
func (t *Token) destroy(id []byte) { _ = t.remove(pkcs11.NewAttribute(pkcs11.CKA_ID, id)) }

func (t *Token) destroyAll() error { return t.remove() }

// remove destroys our keys that match the template, private and public.
func (t *Token) remove(template ...*pkcs11.Attribute) error {
	template = append(template, pkcs11.NewAttribute(pkcs11.CKA_LABEL, t.config.Label))
	return t.once(func(session pkcs11.SessionHandle) error {
		found, err := t.objects(session, template...)
		for _, object := range found {
			err = errors.Join(err, t.module.DestroyObject(session, object))
		}
		return err
	})
}
