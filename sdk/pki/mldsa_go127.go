//go:build go1.27 && !fips140v1.0

package pki

import (
	"crypto"
	"crypto/mldsa"
	"strings"
)

func withoutMLDSA() error { return nil }

func generateMLDSA(t KeyType) (crypto.Signer, error) {
	parameters := map[KeyType]mldsa.Parameters{MLDSA44: mldsa.MLDSA44(), MLDSA65: mldsa.MLDSA65(), MLDSA87: mldsa.MLDSA87()}
	key, err := mldsa.GenerateKey(parameters[t])
	if err != nil {
		return nil, err // not a nil *PrivateKey
	}
	return key, nil
}

func mldsaTypeOf(public crypto.PublicKey) KeyType {
	if key, ok := public.(*mldsa.PublicKey); ok {
		return KeyType(strings.ToLower(key.Parameters().String()))
	}
	return ""
}
