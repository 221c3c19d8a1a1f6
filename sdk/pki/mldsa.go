package pki

import (
	"bytes"
	"encoding/asn1"
	"errors"
)

// mldsaOIDs name ML-DSA keys and their signatures (RFC 9881, section 2).
var mldsaOIDs = map[KeyType]asn1.ObjectIdentifier{
	MLDSA44: {2, 16, 840, 1, 101, 3, 4, 3, 17},
	MLDSA65: {2, 16, 840, 1, 101, 3, 4, 3, 18},
	MLDSA87: {2, 16, 840, 1, 101, 3, 4, 3, 19},
}

func (t KeyType) isMLDSA() bool { return mldsaOIDs[t] != nil }

// hasMLDSA reports whether DER names ML-DSA anywhere. It only chooses words: the package that
// would parse it is missing.
func hasMLDSA(der []byte) bool {
	for _, oid := range mldsaOIDs {
		if name, err := asn1.Marshal(oid); err == nil && bytes.Contains(der, name) {
			return true
		}
	}
	return false
}

// lacking returns why this build could not use a certificate or CSR (DER): it has ML-DSA, and
// the build has not. It is nil if that is not the reason.
func lacking(der []byte) error {
	if err := withoutMLDSA(); err != nil && hasMLDSA(der) {
		return mldsaError{err}
	}
	return nil
}

// mldsaError follows the name of what has the key.
type mldsaError struct{ lack error }

func (e mldsaError) Error() string { return "has an ML-DSA key or signature: " + e.lack.Error() }

// unreadableMLDSA returns why an ML-DSA key was not read.
func unreadableMLDSA() error {
	if err := withoutMLDSA(); err != nil {
		return mldsaError{err}
	}
	return errors.New("the ML-DSA key is not a seed alone (RFC 9881, section 6), which other programs write, too; convert it: openssl pkey -provparam ml-dsa.output_formats=seed-only")
}
